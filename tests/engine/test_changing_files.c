// Checkpoint files that another program shrinks, rewrites, replaces or removes while they are
// loaded: at each of up to 20 reads of each file. A file that was replaced or removed loads as it
// was; one that was written to is an error that names it; nothing ends the process.
//
// The linker sends pread here (--wrap), so that a change comes before a chosen read and not after a
// delay.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "base/os/file.h"
#include "base/text/buf.h"
#include "nanovllm.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

enum change { NOTHING, SHRINK, REWRITE, REPLACE, REMOVE };
static const char *const change_names[] = {"nothing", "shrink", "rewrite", "replace", "remove"};

// One load's change of one file.
static struct {
    struct stat file;
    const char *path;
    enum change change;
    size_t num_reads; // of the file so far
    size_t at; // the read before which it is changed
} planned;

static void rewrite(const char *path, int flags) {
    int fd = open(path, O_WRONLY | flags, 0600);
    assert_true(fd >= 0);
    for (off_t at = 0; at < planned.file.st_size; at += 4096) {
        assert_true(pwrite(fd, "other bytes", 11, at) == 11);
    }
    close(fd);
}

static void apply_change(void) {
    char other[300];
    switch (planned.change) {
    case SHRINK:
        assert_int_equal(truncate(planned.path, planned.file.st_size / 3), 0);
        break;
    case REWRITE:
        rewrite(planned.path, 0);
        break;
    case REPLACE:
        snprintf(other, sizeof other, "%s.new", planned.path);
        rewrite(other, O_CREAT);
        assert_int_equal(rename(other, planned.path), 0);
        break;
    case REMOVE:
        assert_int_equal(unlink(planned.path), 0);
        break;
    case NOTHING:
        break;
    }
}

ssize_t __real_pread(int fd, void *out, size_t len, off_t offset);
ssize_t __wrap_pread(int fd, void *out, size_t len, off_t offset);

ssize_t __wrap_pread(int fd, void *out, size_t len, off_t offset) {
    struct stat info;
    bool is_planned = planned.path && fstat(fd, &info) == 0 && info.st_dev == planned.file.st_dev &&
                      info.st_ino == planned.file.st_ino;
    if (is_planned && ++planned.num_reads == planned.at) apply_change();
    return __real_pread(fd, out, len, offset);
}

// A small model's weights as one shard of an index, and the bundled model's text files.
static const struct {
    const char *name, *from;
} files[] = {
    {"config.json", "tests/reference/data/qwen3/config.json"},
    {"generation_config.json", "tests/reference/data/qwen3/generation_config.json"},
    {"shard.safetensors", "tests/reference/data/qwen3/model.safetensors"},
    {"model.safetensors.index.json", NULL},
    {"tokenizer.json", "models/tiny-qwen3/tokenizer.json"},
    {"tokenizer_config.json", "models/tiny-qwen3/tokenizer_config.json"},
    {"chat_template.jinja", "models/tiny-qwen3/chat_template.jinja"},
};
static struct buf contents[ARRAY_LEN(files)];

// {"weight_map": {tensor: "shard.safetensors", ...}}
static void make_index(struct buf *out, const struct buf *shard) {
    uint64_t header_bytes = 0;
    memcpy(&header_bytes, shard->data, sizeof header_bytes);
    json_t *header = NULL, *root = json_object(), *map = json_object();
    assert_int_equal(jread_text(&header, shard->data + 8, (size_t)header_bytes, "shard", NULL), OK);
    const char *name;
    json_t *value;
    json_object_foreach(header, name, value) {
        if (strcmp(name, "__metadata__") == 0) continue;
        json_object_set_new(map, name, json_string("shard.safetensors"));
    }
    json_object_set_new(root, "weight_map", map);
    assert_int_equal(jwrite(out, root, 0, "index", NULL), OK);
    json_decref(root);
    json_decref(header);
}

static int read_contents(void **state) {
    (void)state;
    struct err err = {0};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        if (!files[i].from) {
            make_index(&contents[i], &contents[i - 1]);
        } else if (file_read(&contents[i], files[i].from, &err)) {
            fail_msg("%s", err.message);
        }
    }
    return 0;
}

static int free_contents(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) buf_fini(&contents[i]);
    return 0;
}

// Everything that reads the folder, one request included.
static enum nvllm_status load(const char *folder, struct nvllm_error *error) {
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    options.model = folder;
    options.device = "cpu";
    options.threads = 1;
    options.max_model_len = 32;
    options.max_num_seqs = 1;
    options.max_num_batched_tokens = 32;
    options.num_kvcache_blocks = 4;
    options.skip_tokenizer_init = 1; // of another vocabulary
    struct nvllm_engine *engine = NULL;
    struct nvllm_tokenizer *tokenizer = NULL;
    struct nvllm_chat_template *chat_template = NULL;
    struct nvllm_result *results = NULL;
    const int32_t ids[] = {5, 6, 7};
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    request.prompt_token_ids = ids;
    request.num_prompt_token_ids = ARRAY_LEN(ids);
    enum nvllm_status status = nvllm_engine_create(&engine, &options, error);
    if (!status) {
        status = nvllm_engine_generate(engine, &request, 1, &results, NULL, error);
        if (!status) assert_int_not_equal(results[0].finish_reason, NVLLM_FINISH_ERROR);
        nvllm_results_free(results, status ? 0 : 1);
    }
    if (!status) status = nvllm_tokenizer_open(&tokenizer, folder, error);
    if (!status) status = nvllm_chat_template_open(&chat_template, folder, NULL, error);
    nvllm_chat_template_close(chat_template);
    nvllm_tokenizer_close(tokenizer);
    nvllm_engine_destroy(engine);
    return status;
}

// Loads a fresh folder in which files[index] is changed before its read number `at`. Returns how
// many reads of it there were.
static size_t load_changing(size_t index, enum change change, size_t at) {
    static const struct timespec long_ago[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    struct temp_folder folder;
    char path[256];
    temp_folder_create(&folder);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        temp_folder_write(&folder, files[i].name, contents[i].data, contents[i].len);
        snprintf(path, sizeof path, "%s/%s", folder.path, files[i].name);
        // A clock that ticks too slowly to tell the change from the file's making is no matter
        // here.
        assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
    }
    snprintf(path, sizeof path, "%s/%s", folder.path, files[index].name);
    memset(&planned, 0, sizeof planned);
    assert_int_equal(stat(path, &planned.file), 0);
    planned.path = path;
    planned.change = change;
    planned.at = at;
    struct nvllm_error error = {0};
    enum nvllm_status status = load(folder.path, &error);
    planned.path = NULL;
    bool is_written = change == SHRINK || change == REWRITE;
    // Two objects read these: what was put in their place, or removed, the second one finds.
    bool is_opened_twice = strcmp(files[index].name, "tokenizer_config.json") == 0 ||
                           strcmp(files[index].name, "chat_template.jinja") == 0;
    if (is_written ? status == NVLLM_OK : status != NVLLM_OK && !is_opened_twice) {
        fail_msg("%s, %s before read %zu: status %d: %s", files[index].name, change_names[change],
                 at, (int)status, error.message);
    }
    if (status && !strstr(error.message, is_opened_twice ? folder.path : path)) {
        fail_msg("%s, %s: not named in: %s", files[index].name, change_names[change],
                 error.message);
    }
    temp_folder_remove(&folder);
    return planned.num_reads;
}

static void test_every_file_at_every_read(void **state) {
    (void)state;
    enum { POINTS = 20 };
    for (size_t index = 0; index < ARRAY_LEN(files); index++) {
        size_t num_reads = load_changing(index, NOTHING, 0);
        assert_true(num_reads > 0); // the hook is in place
        size_t points = num_reads < POINTS ? num_reads : POINTS;
        for (size_t i = 0; i < points; i++) {
            size_t at = 1 + i * (num_reads - 1) / (points > 1 ? points - 1 : 1);
            for (int change = SHRINK; change <= REMOVE; change++) {
                load_changing(index, (enum change)change, at);
            }
        }
    }
}

// Byte by byte.
static void test_file_that_ends_in_every_place(void **state) {
    (void)state;
    struct err err = {0};
    struct file file;
    char path[] = "/tmp/nanovllm-shrink-XXXXXX", buffer[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, contents[0].data, 64) == 64);
    close(fd);
    assert_int_equal(file_open(&file, path, &err), OK);
    for (off_t size = 63; size >= 0; size--) {
        assert_int_equal(truncate(path, size), 0);
        assert_int_equal(file_read_at(&file, 0, buffer, (size_t)size, &err), OK);
        assert_int_equal(file_read_at(&file, 0, buffer, (size_t)size + 1, &err), ERR_IO);
        assert_int_equal(file_check_unchanged(&file, &err), ERR_IO);
        assert_non_null(strstr(err.message, path));
    }
    file_close(&file);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_file_at_every_read),
        cmocka_unit_test(test_file_that_ends_in_every_place),
    };
    return cmocka_run_group_tests_name("changing_files", tests, read_contents, free_contents);
}
