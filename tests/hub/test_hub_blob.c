/* A file on its way into the cache: who waits for its lock sees progress, and downloads on a file
 * system without locks do not meet. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hub/hub_blob.h"
#include "hub/hub_library.h"
#include "support/cmocka_all.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define TEXT "half a model and the other half"
#define TEXT_HASH "f275e04b15f7b958c1e8e600a564b4ac89edee391388998bd30eb6f720c5d51b"

static bool has_no_locks;

// Takes the place of the system's, which the file system of the test has.
int flock(int fd, int operation) {
    if (!has_no_locks) return (int)syscall(SYS_flock, fd, operation);
    errno = ENOLCK;
    return -1;
}

struct fixture {
    struct hub_repo repo;
    struct hub_settings settings;
    struct hub_library library;
    char blobs[FILE_PATH_MAX + 10];
};

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    struct hub_name name;
    *state = f;
    snprintf(f->settings.cache, sizeof f->settings.cache, "/tmp/test_hub_blob.XXXXXX");
    if (!f || !mkdtemp(f->settings.cache) || !hub_name_parse(&name, "a/b")) return 1;
    f->settings.timeout_seconds = 0.001;
    if (hub_library_open(&f->library, NULL)) return 1;
    if (hub_repo_make(&f->repo, &f->settings, &name, NULL)) return 1;
    memcpy(f->repo.commit, COMMIT, sizeof COMMIT);
    f->repo.library = &f->library;
    snprintf(f->blobs, sizeof f->blobs, "%s/blobs", f->repo.folder);
    has_no_locks = false;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    char line[200];
    snprintf(line, sizeof line, "rm -r %.100s", f->settings.cache);
    int rc = system(line); // NOLINT(cert-env33-c): a fixed text
    free(f);
    return rc;
}

static void init_blob(struct hub_blob *blob, const struct fixture *f) {
    hub_blob_init(blob, &f->repo, "model.safetensors");
    memcpy(blob->etag, TEXT_HASH, sizeof TEXT_HASH);
    blob->size = sizeof TEXT - 1;
}

static void write_part(struct hub_blob *blob, size_t begin, size_t end) {
    assert_int_equal(hub_blob_write(blob, &TEXT[begin], end - begin, NULL), OK);
}

// The only blob is the whole file.
static void check_whole(const struct fixture *f) {
    char line[2 * FILE_PATH_MAX + 200];
    snprintf(line, sizeof line,
             "cd %s && test \"$(ls)\" = " TEXT_HASH " && test \"$(cat " TEXT_HASH ")\" = '" TEXT
             "'",
             f->blobs);
    assert_int_equal(system(line), 0); // NOLINT(cert-env33-c): a fixed text
}

// An unfinished file of so many bytes.
static void make_incomplete(const struct fixture *f, off_t size) {
    char path[FILE_PATH_MAX + 100];
    snprintf(path, sizeof path, "%s/" TEXT_HASH ".incomplete", f->blobs);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(ftruncate(fd, size), 0);
    close(fd);
}

static void test_bytes_that_are_there_are_hashed_in_slices(void **state) {
    struct fixture *f = *state;
    struct hub_blob blob;
    init_blob(&blob, f);
    blob.size = 10 << 20;
    make_incomplete(f, 9 << 20);
    assert_int_equal(hub_blob_open(&blob, NULL), HUB_BLOB_HASHING);
    struct stat touched;
    struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(futimens(blob.lock, old), 0);
    assert_int_equal(hub_blob_open(&blob, NULL), HUB_BLOB_OPEN);
    assert_int_equal(blob.num_hashed, 9 << 20);
    // Who waits for the lock sees by its time that the owner is alive.
    assert_int_equal(fstat(blob.lock, &touched), 0);
    assert_true(touched.st_mtim.tv_sec > 1);
    hub_blob_close(&blob);
}

static void test_a_lock_is_waited_for_while_its_owner_makes_progress(void **state) {
    struct fixture *f = *state;
    struct hub_blob owner, other;
    struct err err;
    struct timespec longer = {.tv_nsec = 10000000}; // than 6 times the timeout
    init_blob(&owner, f);
    init_blob(&other, f);
    assert_int_equal(hub_blob_open(&owner, NULL), HUB_BLOB_OPEN);
    assert_int_equal(hub_blob_open(&other, NULL), HUB_BLOB_BUSY);
    nanosleep(&longer, NULL);
    write_part(&owner, 0, 1);
    assert_int_equal(hub_blob_open(&other, NULL), HUB_BLOB_BUSY);
    nanosleep(&longer, NULL);
    assert_int_equal(futimens(owner.lock, NULL), 0); // it hashes
    assert_int_equal(hub_blob_open(&other, NULL), HUB_BLOB_BUSY);
    nanosleep(&longer, NULL);
    assert_int_equal(hub_blob_open(&other, &err), HUB_BLOB_FAILED);
    assert_non_null(strstr(err.message, "has made no progress for"));
    hub_blob_close(&owner);
}

static void test_downloads_without_locks_write_files_of_their_own(void **state) {
    struct fixture *f = *state;
    struct hub_blob first, second;
    has_no_locks = true;
    init_blob(&first, f);
    init_blob(&second, f);
    assert_int_equal(hub_blob_open(&first, NULL), HUB_BLOB_OPEN);
    assert_int_equal(hub_blob_open(&second, NULL), HUB_BLOB_OPEN);
    write_part(&first, 0, 10);
    write_part(&second, 0, 20);
    write_part(&first, 10, first.size);
    assert_int_equal(hub_blob_finish(&first, NULL), HUB_BLOB_DONE);
    write_part(&second, 20, second.size);
    assert_int_equal(hub_blob_finish(&second, NULL), HUB_BLOB_DONE);
    check_whole(f);
}

static void test_what_is_cut_off_without_locks_is_continued_once(void **state) {
    struct fixture *f = *state;
    struct hub_blob first, second, third;
    has_no_locks = true;
    init_blob(&first, f);
    assert_int_equal(hub_blob_open(&first, NULL), HUB_BLOB_OPEN);
    write_part(&first, 0, 10);
    hub_blob_close(&first);
    init_blob(&second, f);
    init_blob(&third, f);
    assert_int_equal(hub_blob_bytes_there(&second), 10);
    assert_int_equal(hub_blob_open(&second, NULL), HUB_BLOB_OPEN);
    assert_int_equal(hub_blob_open(&third, NULL), HUB_BLOB_OPEN);
    assert_int_equal(second.num_bytes, 10);
    assert_int_equal(third.num_bytes, 0);
    write_part(&second, 10, second.size);
    assert_int_equal(hub_blob_finish(&second, NULL), HUB_BLOB_DONE);
    write_part(&third, 0, third.size);
    assert_int_equal(hub_blob_finish(&third, NULL), HUB_BLOB_DONE);
    check_whole(f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_bytes_that_are_there_are_hashed_in_slices),
        TEST(test_a_lock_is_waited_for_while_its_owner_makes_progress),
        TEST(test_downloads_without_locks_write_files_of_their_own),
        TEST(test_what_is_cut_off_without_locks_is_continued_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
