#include "checkpoint/quantized/quantization_document.h"

#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "checkpoint/config_read.h"

static const struct {
    const char *name;
    const char *method;
    const char *member; // with the keys; NULL: they are the document's own
} documents[] = {{"hf_quant_config.json", "modelopt", "quantization"},
                 {"quantize_config.json", "gptq", NULL},
                 {"quant_config.json", "awq", NULL}};

// Gives AutoAWQ's keys the names that they have in config.json. Returns 0, or -1: out of memory.
static int rename_keys(json_t *object) {
    static const char *const names[][2] = {{"w_bit", "bits"}, {"q_group_size", "group_size"}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_t *value = json_object_get(object, names[i][0]);
        if (!value || jread_get(object, names[i][1])) continue;
        if (json_object_set(object, names[i][1], value)) return -1;
        (void)json_object_del(object, names[i][0]);
    }
    return 0;
}

static enum status read_document(struct quantization_config *out, size_t i, const char *text,
                                 size_t len, const char *what, struct err *err) {
    json_t *root = NULL;
    enum status status = config_read_object(&root, text, len, what, err);
    if (status) return status;
    json_t *object = documents[i].member ? jread_get(root, documents[i].member) : root;
    if (!json_is_object(object)) {
        status = err_set(err, ERR_FORMAT, "%s: \"%s\" is %s, want an object", what,
                         documents[i].member, jread_type_name(object));
        json_decref(root);
        return status;
    }
    int failed = rename_keys(object);
    if (!jread_get(object, "quant_method")) {
        failed |= json_object_set_new(object, "quant_method", json_string(documents[i].method));
    }
    json_t *config = failed ? NULL : json_pack("{s:O}", "quantization_config", object);
    status = config ? quantization_config_read(out, config, what, err) : err_nomem(err, what);
    json_decref(config);
    json_decref(root);
    return status;
}

enum status quantization_document_read(struct quantization_config *out,
                                       const struct checkpoint *checkpoint, struct err *err) {
    *out = (struct quantization_config){0};
    for (size_t i = 0; i < ARRAY_LEN(documents); i++) {
        struct document_name what;
        struct buf text = {0};
        bool present = false;
        enum status status = checkpoint_find(checkpoint, documents[i].name, &what, &present, err);
        if (status) return status;
        if (!present) continue;
        status = checkpoint_read(checkpoint, documents[i].name, &text, err);
        if (!status) status = read_document(out, i, text.data, text.len, what.text, err);
        buf_fini(&text);
        return status;
    }
    return OK;
}
