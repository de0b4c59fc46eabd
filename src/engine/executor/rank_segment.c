#include "engine/executor/rank_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/c_locale.h"
#include "engine/executor/rank_options.h"

enum { ALIGN = 4096 };

static const uint32_t version[3] = {NVLLM_VERSION_MAJOR, NVLLM_VERSION_MINOR, NVLLM_VERSION_PATCH};

// Hands out `bytes`, page-aligned, of a segment that so far has *size bytes.
static size_t take(size_t *size, size_t bytes) {
    size_t at = *size;
    *size += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static void *at(struct rank_segment *segment, size_t offset) {
    return (char *)segment + offset;
}

void rank_segment_options(const struct rank_segment *segment, struct nvllm_engine_options *out) {
    rank_options_read((const char *)segment + segment->options_at, out);
}

struct shm_comm_shape rank_segment_comm_shape(const struct engine_plan *plan) {
    const struct step_limits *limits = &plan->runner.decoder.limits;
    struct shm_comm_shape shape = {
        .world_size = plan->world_size,
        .partial_bytes = (size_t)limits->max_num_tokens * plan->config.hidden_size *
                         dtype_size(plan->backend->activation_dtype),
        .max_num_logits = limits->max_num_seqs,
    };
    for (uint32_t rank = 0; rank <= plan->world_size; rank++) {
        shape.vocab_start[rank] = decoder_vocab_start(&plan->config, rank, plan->world_size);
    }
    return shape;
}

void rank_segment_collective_spec(const struct engine_plan *plan, struct collective_spec *out) {
    const struct step_limits *limits = &plan->runner.decoder.limits;
    *out = (struct collective_spec){
        .kind = plan->collective_kind,
        .is_one_host = plan->is_one_host,
        .rank = plan->rank,
        .world_size = plan->world_size,
        .hidden = plan->config.hidden_size,
        .max_num_tokens = limits->max_num_tokens,
        .max_num_logits = limits->max_num_seqs,
    };
    for (uint32_t rank = 0; rank <= plan->world_size; rank++) {
        out->vocab_start[rank] = decoder_vocab_start(&plan->config, rank, plan->world_size);
    }
}

static struct rank_segment lay_out(const struct engine_plan *plan,
                                   const struct nvllm_engine_options *options) {
    const struct step_limits *limits = &plan->runner.decoder.limits;
    struct rank_segment s = {
        .segment_struct_bytes = sizeof s,
        .options_struct_bytes = sizeof *options,
        .engine = plan->engine,
        .world_size = plan->world_size,
        .parent = getpid(),
        .comm_shape = rank_segment_comm_shape(plan),
    };
    memcpy(s.version, version, sizeof version);
    take(&s.size_bytes, sizeof s);
    s.options_at = take(&s.size_bytes, rank_options_bytes(*options));
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        s.batch_at[i] = take(&s.size_bytes, plan->runner.batch_bytes);
    }
    bool has_devices = plan->backend->collective != NULL;
    size_t num_results = (size_t)limits->max_num_seqs + limits->max_num_tokens;
    if (!has_devices) {
        s.results_at = take(&s.size_bytes, num_results * sizeof(struct sample_result));
    }
    for (uint32_t i = 0; i < RANK_COMMANDS; i++) {
        s.ids_at[i] = take(&s.size_bytes, limits->max_positions * sizeof(int32_t));
    }
    size_t comm_bytes = has_devices ? COLLECTIVE_CARD_BYTES : shm_comm_rank_bytes(&s.comm_shape);
    s.comm_at = take(&s.size_bytes, s.world_size * comm_bytes);
    if (has_devices) rank_segment_collective_spec(plan, &s.collective);
    return s;
}

size_t rank_segment_share_bytes(const struct engine_plan *plan) {
    const struct nvllm_engine_options defaults = NVLLM_ENGINE_OPTIONS_INIT;
    return lay_out(plan, &defaults).size_bytes / plan->world_size;
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

enum status rank_segment_create(struct rank_segment **out, int *fd, const struct engine_plan *plan,
                                const struct nvllm_engine_options *options, struct err *err) {
    const struct rank_segment layout = lay_out(plan, options);
    *out = NULL;
    *fd = create_memory();
    // Taken now: a page that is missing later would end the process that touches it.
    int error = *fd < 0 ? errno : posix_fallocate(*fd, 0, (off_t)layout.size_bytes);
    enum status status = OK;
    if (error) {
        status =
            err_set(err, ERR_NOMEM, "cannot allocate %zu bytes of shared memory for %u ranks: %s",
                    layout.size_bytes, layout.world_size, c_locale_strerror(error));
    }
    if (!status) status = map(out, *fd, layout.size_bytes, err);
    if (status) {
        if (*fd >= 0) close(*fd);
        *fd = -1;
        return status;
    }
    memcpy(*out, &layout, sizeof layout);
    rank_options_write(at(*out, layout.options_at), *options);
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
    if (segment) munmap(segment, segment->size_bytes);
}

struct batch_header *rank_segment_batch(struct rank_segment *segment, uint32_t slot) {
    return at(segment, segment->batch_at[slot]);
}

struct sample_result *rank_segment_results(struct rank_segment *segment) {
    return !segment->results_at ? NULL : at(segment, segment->results_at);
}

int32_t *rank_segment_ids(struct rank_segment *segment, uint32_t command) {
    return at(segment, segment->ids_at[command]);
}

enum status rank_segment_comm(struct rank_segment *segment, uint32_t rank, struct backend *backend,
                              struct comm **out, struct err *err) {
    void *memory = at(segment, segment->comm_at);
    if (!backend->collective) {
        return shm_comm_create(out, &segment->comm_shape, rank, &segment->barrier, memory, err);
    }
    struct collective_spec spec = segment->collective;
    spec.rank = rank;
    const struct device_comm_options options = {
        .backend = backend, .spec = &spec, .barrier = &segment->barrier, .cards = memory};
    return device_comm_create(out, &options, err);
}
