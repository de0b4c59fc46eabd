#include "engine/ranks/mpi_message.h"

#include <xxhash.h>

#include "base/file.h"

enum status mpi_message_fingerprint(const struct engine_plan *plan,
                                    const struct nvllm_engine_options *options, uint64_t *out,
                                    struct err *err) {
    char path[FILE_PATH_MAX];
    struct buf config = {0};
    struct weights *weights = NULL;
    enum status status = file_join(path, sizeof path, options->model, "config.json", err);
    if (!status) status = file_read(&config, path, err);
    if (!status) status = engine_plan_open_weights(plan, options, &weights, err);
    if (!status) status = weights_fingerprint(weights, out, err);
    if (!status) *out = XXH3_64bits_withSeed(config.data, config.len, *out);
    weights_close(weights);
    buf_fini(&config);
    return status;
}
