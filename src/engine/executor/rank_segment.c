#include "engine/executor/rank_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/c_locale.h"
#include "engine/executor/rank_options.h"

static const uint32_t version[3] = {NVLLM_VERSION_MAJOR, NVLLM_VERSION_MINOR, NVLLM_VERSION_PATCH};

static void *at(struct rank_segment *segment, size_t offset) {
    return (char *)segment + offset;
}

void rank_segment_options(const struct rank_segment *segment, struct nvllm_engine_options *out) {
    rank_options_read((const char *)segment + segment->layout.options_at, out);
}

static enum status map(struct rank_segment **out, int fd, size_t bytes, struct err *err) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        return err_set(err, ERR_NOMEM, "cannot map the %zu bytes that ranks share: %s", bytes,
                       c_locale_strerror(errno));
    }
    *out = memory;
    return OK;
}

// Above the standard descriptors, one of which may be closed: ranks get files of their own there.
static int create_memory(void) {
    int fd = memfd_create("nanovllm ranks", MFD_CLOEXEC);
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    close(fd);
    errno = error;
    return above;
}

_Static_assert(sizeof(struct rank_segment) <= RANK_HEAD_BYTES, "the memory begins with it");

enum status rank_segment_create(struct rank_segment **out, int *fd, const struct engine_plan *plan,
                                const struct nvllm_engine_options *options, struct err *err) {
    struct rank_segment head = {
        .segment_struct_bytes = sizeof head,
        .options_struct_bytes = sizeof *options,
        .engine = plan->engine,
        .world_size = plan->world_size,
        .parent = getpid(),
        .layout = rank_layout_make(plan, rank_options_bytes(*options)),
    };
    memcpy(head.version, version, sizeof version);
    size_t size_bytes = head.layout.size_bytes;
    *out = NULL;
    *fd = create_memory();
    // Taken now: a page that is missing later would end the process that touches it.
    int error = *fd < 0 ? errno : posix_fallocate(*fd, 0, (off_t)size_bytes);
    enum status status = OK;
    if (error) {
        status =
            err_set(err, ERR_NOMEM, "cannot allocate %zu bytes of shared memory for %u ranks: %s",
                    size_bytes, head.world_size, c_locale_strerror(error));
    }
    if (!status) status = map(out, *fd, size_bytes, err);
    if (status) {
        if (*fd >= 0) close(*fd);
        *fd = -1;
        return status;
    }
    memcpy(*out, &head, sizeof head);
    rank_options_write(at(*out, head.layout.options_at), *options);
    return OK;
}

static bool is_ours(const struct rank_segment *segment) {
    return memcmp(segment->version, version, sizeof version) == 0 &&
           segment->segment_struct_bytes == sizeof *segment &&
           segment->options_struct_bytes == sizeof(struct nvllm_engine_options);
}

enum status rank_segment_open(struct rank_segment **out, int fd, struct err *err) {
    struct stat info;
    *out = NULL;
    if (fstat(fd, &info) || (size_t)info.st_size < sizeof **out) {
        return err_set(err, ERR_INVALID, "descriptor %d is not the memory that ranks share", fd);
    }
    enum status status = map(out, fd, (size_t)info.st_size, err);
    if (status || is_ours(*out)) return status;
    // Not unmapped, because another version's size_bytes cannot be trusted. The process ends soon.
    *out = NULL;
    return err_set(err, ERR_UNSUPPORTED,
                   "the program that the ranks run is not of this library's version");
}

void rank_segment_close(struct rank_segment *segment) {
    if (segment) munmap(segment, segment->layout.size_bytes);
}

struct batch_header *rank_segment_batch(struct rank_segment *segment, uint32_t slot) {
    return at(segment, segment->layout.batch_at[slot]);
}

struct sample_result *rank_segment_results(struct rank_segment *segment) {
    return !segment->layout.results_at ? NULL : at(segment, segment->layout.results_at);
}

int32_t *rank_segment_ids(struct rank_segment *segment, uint32_t command) {
    return at(segment, segment->layout.ids_at[command]);
}

enum status rank_segment_comm(struct rank_segment *segment, uint32_t rank, struct backend *backend,
                              struct comm **out, struct err *err) {
    void *memory = at(segment, segment->layout.comm_at);
    if (!backend->collective) {
        return shm_comm_create(out, &segment->layout.comm_shape, rank, &segment->barrier, memory,
                               err);
    }
    struct collective_spec spec = segment->layout.collective;
    spec.rank = rank;
    const struct device_comm_options options = {
        .backend = backend, .spec = &spec, .barrier = &segment->barrier, .cards = memory};
    return device_comm_create(out, &options, err);
}
