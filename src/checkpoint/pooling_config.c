#include "checkpoint/pooling_config.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "checkpoint/checkpoint.h"

static void refuse(struct pooling_config *config, const char *what, const char *value) {
    if (config->unsupported[0]) return; // the first one is told
    snprintf(config->unsupported, sizeof config->unsupported, "%s %.60s is not supported", what,
             value);
}

// A key "pooling_mode_NAME" that is true asks for NAME; newer files have "pooling_mode": "NAME".
static void take_mode(struct pooling_config *config, const char *name) {
    if (strcmp(name, "lasttoken") == 0) {
        config->kind = POOLING_LAST;
    } else if (strcmp(name, "mean_tokens") == 0 || strcmp(name, "mean") == 0) {
        config->kind = POOLING_MEAN;
    } else {
        refuse(config, "pooling by", name);
    }
}

static enum status read_modes(struct pooling_config *config, const json_t *root, const char *what,
                              struct err *err) {
    static const char prefix[] = "pooling_mode_";
    const char *key, *mode = NULL;
    json_t *value;
    uint32_t num_modes = 0;
    if (!json_is_object(root)) return err_set(err, ERR_FORMAT, "%s: want an object", what);
    json_object_foreach((json_t *)(uintptr_t)root, key, value) {
        if (strncmp(key, prefix, sizeof prefix - 1) != 0 || !json_is_true(value)) continue;
        take_mode(config, key + sizeof prefix - 1);
        num_modes++;
    }
    enum status status = jread_string(root, "pooling_mode", &mode, what, err);
    if (status) return status;
    if (mode) take_mode(config, mode);
    if (!num_modes && !mode) { // the class's own default is the mean
        bool is_off = json_is_false(json_object_get(root, "pooling_mode_mean_tokens"));
        take_mode(config, is_off ? "no mode at all" : "mean");
    }
    if (num_modes + (mode != NULL) > 1) refuse(config, "pooling by", "several modes at once");
    bool include_prompt = true;
    status = jread_bool(root, "include_prompt", &include_prompt, what, err);
    if (!status && !include_prompt && config->kind == POOLING_MEAN) {
        refuse(config, "a mean", "without the prompt's tokens");
    }
    return status;
}

// modules.json: [{"type": "sentence_transformers.models.Transformer", "path": ""}, ...]. The type's
// last component says what it is.
static enum status read_modules(struct pooling_config *config, const json_t *root, const char *what,
                                struct err *err) {
    size_t i;
    json_t *module;
    if (!json_is_array(root)) return err_set(err, ERR_FORMAT, "%s: want a list", what);
    config->normalizes = false;
    json_array_foreach(root, i, module) {
        const char *type = NULL;
        enum status status = jread_string(module, "type", &type, what, err);
        if (status) return status;
        const char *dot = type ? strrchr(type, '.') : NULL;
        const char *name = dot ? dot + 1 : type ? type : "without a type";
        if (strcmp(name, "Normalize") == 0) {
            config->normalizes = true;
        } else if (strcmp(name, "Transformer") != 0 && strcmp(name, "Pooling") != 0) {
            refuse(config, "the module", name);
        }
    }
    return OK;
}

static enum status read_prompts(struct pooling_config *config, const json_t *root, const char *what,
                                struct err *err) {
    const char *name;
    json_t *text, *prompts = jread_get(root, "prompts");
    if (!prompts) return OK;
    if (!json_is_object(prompts)) {
        return err_set(err, ERR_FORMAT, "%s: \"prompts\" is %s, want an object", what,
                       jread_type_name(prompts));
    }
    json_object_foreach(prompts, name, text) {
        if (json_is_string(text)) continue;
        return err_set(err, ERR_FORMAT, "%s: \"prompts\" has no text for %.60s", what, name);
    }
    config->prompts = json_incref(prompts);
    return OK;
}

typedef enum status (*read_fn)(struct pooling_config *config, const json_t *root, const char *what,
                               struct err *err);

enum status pooling_config_load(struct pooling_config *config, const struct checkpoint *checkpoint,
                                struct err *err) {
    static const struct {
        const char *document;
        read_fn read;
        bool is_word; // of how vectors are made
    } documents[] = {
        {"modules.json", read_modules, true},
        {"1_Pooling/config.json", read_modes, true},
        {"config_sentence_transformers.json", read_prompts, false},
    };
    *config = (struct pooling_config){.normalizes = true};
    for (size_t i = 0; i < ARRAY_LEN(documents); i++) {
        struct document_name what;
        json_t *root = NULL;
        enum status status =
            checkpoint_read_strings(checkpoint, documents[i].document, &what, &root, err);
        if (!status && root) status = documents[i].read(config, root, what.text, err);
        if (root && documents[i].is_word) config->is_present = true;
        json_decref(root);
        if (!status) continue;
        pooling_config_fini(config);
        return status;
    }
    return OK;
}

void pooling_config_fini(struct pooling_config *config) {
    json_decref(config->prompts);
    *config = (struct pooling_config){0};
}
