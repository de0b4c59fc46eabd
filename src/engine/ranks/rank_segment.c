#include "engine/ranks/rank_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/c_locale.h"
#include "engine/params.h"

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

// The string fields of options, by the parameter table. NULL past the end.
static const char **string_field(struct nvllm_engine_options *options, size_t number) {
    for (size_t i = 0; params_engine_option(i); i++) {
        const struct nvllm_param *param = params_engine_option(i);
        if (param->type != NVLLM_PARAM_STRING || number--) continue;
        return (const char **)(void *)((char *)options + param->offset);
    }
    return NULL;
}

// The struct, and behind it each string with its NUL; a NULL string has none.
static size_t options_bytes(struct nvllm_engine_options options) {
    size_t bytes = sizeof options;
    const char **field;
    for (size_t i = 0; (field = string_field(&options, i)); i++) {
        if (*field) bytes += strlen(*field) + 1;
    }
    return bytes;
}

static void write_options(char *out, struct nvllm_engine_options options) {
    char *text = out + sizeof options;
    const char **field;
    for (size_t i = 0; (field = string_field(&options, i)); i++) {
        if (!*field) continue;
        size_t len = strlen(*field) + 1;
        memcpy(text, *field, len);
        text += len;
    }
    options.interrupt = NULL;
    memcpy(out, &options, sizeof options);
}

void rank_segment_options(const struct rank_segment *segment, struct nvllm_engine_options *out) {
    const char *options = (const char *)segment + segment->options_at;
    const char *text = options + sizeof *out;
    memcpy(out, options, sizeof *out);
    const char **field;
    for (size_t i = 0; (field = string_field(out, i)); i++) {
        if (!*field) continue; // what else it holds is rank 0's pointer
        *field = text;
        text += strlen(text) + 1;
    }
}

static struct shm_comm_shape comm_shape_of(const struct engine_plan *plan) {
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

static struct rank_segment lay_out(const struct engine_plan *plan,
                                   const struct nvllm_engine_options *options) {
    const struct step_limits *limits = &plan->runner.decoder.limits;
    struct rank_segment s = {
        .segment_struct_bytes = sizeof s,
        .options_struct_bytes = sizeof *options,
        .world_size = plan->world_size,
        .parent = getpid(),
        .comm_shape = comm_shape_of(plan),
    };
    memcpy(s.version, version, sizeof version);
    take(&s.size_bytes, sizeof s);
    s.options_at = take(&s.size_bytes, options_bytes(*options));
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        s.batch_at[i] = take(&s.size_bytes, plan->runner.batch_bytes);
    }
    size_t num_results = (size_t)limits->max_num_seqs + limits->max_num_tokens;
    s.results_at = take(&s.size_bytes, num_results * sizeof(struct sample_result));
    for (uint32_t i = 0; i < RANK_COMMANDS; i++) {
        s.ids_at[i] = take(&s.size_bytes, limits->max_positions * sizeof(int32_t));
    }
    s.comm_at = take(&s.size_bytes, s.world_size * shm_comm_rank_bytes(&s.comm_shape));
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

enum status rank_segment_create(struct rank_segment **out, int *fd, const struct engine_plan *plan,
                                const struct nvllm_engine_options *options, struct err *err) {
    const struct rank_segment layout = lay_out(plan, options);
    *out = NULL;
    *fd = memfd_create("nanovllm ranks", MFD_CLOEXEC);
    // Taken now: a page that is missing later would end the process that touches it.
    int error = *fd < 0 ? errno : posix_fallocate(*fd, 0, (off_t)layout.size_bytes);
    enum status status = OK;
    if (error) {
        status = err_set(err, ERR_NOMEM, "cannot have %zu bytes of shared memory for %u ranks: %s",
                         layout.size_bytes, layout.world_size, c_locale_strerror(error));
    }
    if (!status) status = map(out, *fd, layout.size_bytes, err);
    if (status) {
        if (*fd >= 0) close(*fd);
        *fd = -1;
        return status;
    }
    memcpy(*out, &layout, sizeof layout);
    write_options(at(*out, layout.options_at), *options);
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
    // The size is not known to be the mapping's: left to the end of the process.
    *out = NULL;
    return err_set(err, ERR_UNSUPPORTED,
                   "the library that starts ranks and their program are not of one version");
}

void rank_segment_close(struct rank_segment *segment) {
    if (segment) munmap(segment, segment->size_bytes);
}

struct batch_header *rank_segment_batch(struct rank_segment *segment, uint32_t slot) {
    return at(segment, segment->batch_at[slot]);
}

struct sample_result *rank_segment_results(struct rank_segment *segment) {
    return at(segment, segment->results_at);
}

int32_t *rank_segment_ids(struct rank_segment *segment, uint32_t command) {
    return at(segment, segment->ids_at[command]);
}

void rank_segment_comm(struct rank_segment *segment, uint32_t rank, struct shm_comm *out) {
    shm_comm_init(out, &segment->comm_shape, rank, &segment->meeting,
                  at(segment, segment->comm_at));
}
