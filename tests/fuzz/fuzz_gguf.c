/* The GGUF reader over arbitrary bytes, and what is made of a file that it accepts: the
 * configuration, the tokenizer's documents, the tensors. Tensors must be inside the bytes; a row of
 * each matrix is decoded. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json/json_out.h"
#include "base/log.h"
#include "checkpoint/gguf/file/gguf_files.h"
#include "checkpoint/gguf/gguf_model.h"
#include "checkpoint/gguf/tokens/gguf_tokens.h"
#include "checkpoint/gguf/weights/gguf_tensors.h"
#include "checkpoint/model_config.h"
#include "checkpoint/tensor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { COLUMNS_MAX = 4096, GROUP = 16 };

static void write_documents(const struct gguf_files *files) {
    struct json_out out = {0};
    struct err err = {0};
    struct model_config config;
    if (!gguf_write_config(files, &out, &err) && !out.status &&
        !model_config_parse(&config, out.buf.data, out.buf.len, "input", &err)) {
        model_config_fini(&config);
    }
    json_out_clear(&out);
    if (gguf_write_generation_config(files->files[0], &out, &err)) json_out_clear(&out);
    json_out_clear(&out);
    if (gguf_write_tokenizer(files->files[0], &out, &err)) json_out_clear(&out);
    json_out_clear(&out);
    if (gguf_write_tokenizer_config(files->files[0], &out, &err)) json_out_clear(&out);
    json_out_fini(&out);
}

static void read_tensor(const struct tensor *tensor, const uint8_t *data, size_t size) {
    float row[COLUMNS_MAX];
    const uint8_t *first = tensor->source.data;
    bool is_copy = tensor->rank == 1 && (first < data || first >= data + size); // a permuted bias
    CHECK(is_copy || (first >= data && first + tensor->size_bytes <= data + size), "%s",
          tensor->name);
    if (!tensor->reader || !tensor->shape[0] || !tensor->shape[1]) return;
    size_t count = tensor->shape[1] < COLUMNS_MAX ? (size_t)tensor->shape[1] : COLUMNS_MAX;
    enum status status =
        tensor->reader->read(tensor->reader, tensor->shape[0] - 1, 0, count, row, NULL);
    CHECK(!status, "%s", tensor->name);
    if (!tensor->reader->read_codes) return;
    uint8_t codes[COLUMNS_MAX];
    float scales[COLUMNS_MAX / GROUP], offsets[COLUMNS_MAX / GROUP];
    const struct matrix_codes out = {.codes = codes, .scales = scales, .offsets = offsets};
    status = tensor->reader->read_codes(tensor->reader, 0, 0, count, GROUP, &out, NULL);
    CHECK(!status, "%s", tensor->name);
    if (!tensor->reader->form.unit) return;
    int8_t multiples[COLUMNS_MAX / GROUP], offset_multiples[COLUMNS_MAX / GROUP];
    const struct matrix_codes units = {.codes = codes,
                                       .scales = scales,
                                       .offsets = offsets,
                                       .scale_multiples = multiples,
                                       .offset_multiples = offset_multiples,
                                       .unit = tensor->reader->form.unit};
    status = tensor->reader->read_codes(tensor->reader, 0, 0, count, GROUP, &units, NULL);
    CHECK(!status, "%s", tensor->name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gguf *gguf = NULL;
    struct gguf_files files;
    struct tensor_set *set = NULL;
    struct err err = {0};
    log_set_level(LOG_QUIET);
    if (gguf_parse(&gguf, data, size, "input", &err)) {
        CHECK(err.message[0], "%s", "no message");
        return 0;
    }
    if (gguf_files_take(&files, gguf, &err)) return 0;
    write_documents(&files);
    if (gguf_tensors_take(&files, &set, &err)) return 0;
    for (size_t i = 0; i < set->count; i++) read_tensor(set->tensors[i], data, size);
    set->close(set);
    return 0;
}
