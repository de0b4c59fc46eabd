#include "checkpoint/quantization_config.h"

#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "checkpoint/config_read.h"

// Formats of others that are no "quantization_config" of transformers.
static enum status check_other_keys(const json_t *root, const char *what, struct err *err) {
    static const char *const keys[] = {"compression_config", "quantization"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (!jread_get(root, keys[i])) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"%s\" says that the weights are quantized, which is not supported",
                       what, keys[i]);
    }
    return OK;
}

// fp8: "weight_block_size" is [rows, columns], or null for one scale for each matrix. Where
// activations are rounded too ("activation_scheme"), they are not here: results are only closer.
static enum status read_fp8(struct quantization_config *out, const json_t *object, const char *what,
                            struct err *err) {
    const json_t *size = jread_get(object, "weight_block_size");
    out->method = QUANTIZED_FP8;
    if (!size) return OK;
    json_int_t rows = json_integer_value(json_array_get(size, 0));
    json_int_t cols = json_integer_value(json_array_get(size, 1));
    if (json_array_size(size) != 2 || rows < 1 || cols < 1 || rows > 65536 || cols > 65536) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"weight_block_size\" of \"quantization_config\" is %s, want two "
                       "numbers from 1 to 65536",
                       what, jread_type_name(size));
    }
    out->block_rows = (uint32_t)rows;
    out->block_cols = (uint32_t)cols;
    return OK;
}

enum status quantization_config_read(struct quantization_config *out, const json_t *root,
                                     const char *what, struct err *err) {
    *out = (struct quantization_config){0};
    enum status status = check_other_keys(root, what, err);
    const json_t *object = jread_get(root, "quantization_config");
    if (status || !object) return status;
    const char *method = json_string_value(json_object_get(object, "quant_method"));
    if (method && strcmp(method, "fp8") == 0) return read_fp8(out, object, what, err);
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"quantization_config\" says that the weights are quantized (%.60s), which "
                   "is not supported; want fp8, or BF16, F16 or F32 weights",
                   what, method ? method : "no \"quant_method\"");
}
