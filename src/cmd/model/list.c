/* `nanovllm list` shows the models of the Hugging Face cache. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json/json_text.h"
#include "base/text/buf.h"
#include "cmd/cli.h"
#include "hub/hub_models.h"

struct list {
    int32_t json;
};

static const struct nvllm_param *own_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"json", NVLLM_PARAM_BOOL, offsetof(struct list, json), 0, 1, NULL,
         "print a JSON list of objects"},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

static const char details[] =
    "Lists the models of the Hugging Face cache: each revision, and of GGUF files each\n"
    "one. The name is what -m takes. A model that is there in part has no weights, or\n"
    "its download was interrupted: pull brings the rest.\n";

// "2026-11-24", in local time.
static void format_day(char *out, size_t size, time_t seconds) {
    struct tm day = {0};
    localtime_r(&seconds, &day);
    snprintf(out, size, "%04d-%02d-%02d", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

static void format_size(char *out, size_t size, uint64_t bytes) {
    bool is_large = bytes >= 1000000000;
    snprintf(out, size, "%.*f %s", is_large ? 2 : 1, (double)bytes / (is_large ? 1e9 : 1e6),
             is_large ? "GB" : "MB");
}

// A commit is shown by its beginning.
static int revision_len(const struct hub_model *model) {
    return strcmp(model->revision, model->commit) == 0 ? 12 : (int)strlen(model->revision);
}

static enum status format_table(struct buf *out, const struct hub_models *models, struct err *err) {
    int name_width = (int)strlen("NAME"), revision_width = (int)strlen("REVISION");
    for (size_t i = 0; i < models->count; i++) {
        int len = (int)strlen(models->items[i].name);
        if (len > name_width) name_width = len;
        if (revision_len(&models->items[i]) > revision_width) {
            revision_width = revision_len(&models->items[i]);
        }
    }
    enum status status = buf_appendf(out, err, "%-*s  %-*s  %10s  %s\n", name_width, "NAME",
                                     revision_width, "REVISION", "SIZE", "CHANGED");
    for (size_t i = 0; i < models->count && !status; i++) {
        const struct hub_model *model = &models->items[i];
        char size[32], day[48];
        format_size(size, sizeof size, model->num_bytes);
        format_day(day, sizeof day, model->changed_at);
        status = buf_appendf(out, err, "%-*s  %-*.*s  %10s  %s%s\n", name_width, model->name,
                             revision_width, revision_len(model), model->revision, size, day,
                             model->is_whole ? "" : ", in part");
    }
    return status;
}

static enum status append_member(struct buf *out, const char *name, const char *text,
                                 struct err *err) {
    enum status status = buf_appendf(out, err, "\"%s\": ", name);
    if (!status) status = json_text_string(out, text, strlen(text), err);
    return status ? status : buf_append_str(out, ", ", err);
}

static enum status format_json(struct buf *out, const struct hub_models *models, struct err *err) {
    enum status status = buf_append_str(out, "[", err);
    for (size_t i = 0; i < models->count && !status; i++) {
        const struct hub_model *model = &models->items[i];
        status = buf_append_str(out, i ? ",\n {" : "\n {", err);
        if (!status) status = append_member(out, "name", model->name, err);
        if (!status) status = append_member(out, "revision", model->revision, err);
        if (!status) status = append_member(out, "commit", model->commit, err);
        if (!status) {
            status = buf_appendf(out, err,
                                 "\"num_bytes\": %llu, \"changed_at\": %lld, \"is_whole\": %s}",
                                 (unsigned long long)model->num_bytes, (long long)model->changed_at,
                                 model->is_whole ? "true" : "false");
        }
    }
    return status ? status : buf_append_str(out, models->count ? "\n]\n" : "]\n", err);
}

int cmd_list(int argc, char **argv) {
    struct list list = {0};
    const struct option_group groups[] = {{.title = "Output", .row = own_option, .target = &list}};
    struct options options = {.command = "list",
                              .synopsis = "[options]",
                              .details = details,
                              .groups = groups,
                              .num_groups = ARRAY_LEN(groups)};
    int exit_code;
    if (!cli_parse(&options, argc, argv, &exit_code)) return exit_code;
    if (options.num_args) {
        return cli_usage_error(&options, "unexpected argument %s", options.args[0]);
    }
    struct err err = {0};
    struct hub_settings settings;
    struct hub_models models = {0};
    struct buf out = {0};
    enum status status = hub_settings_read(&settings, &err);
    if (!status) status = hub_models_list(&models, &settings, &err);
    if (!status) {
        status = list.json ? format_json(&out, &models, &err) : format_table(&out, &models, &err);
    }
    exit_code = status ? cli_error("%s", err.message) : cli_print(out.data, out.len);
    hub_models_fini(&models);
    buf_fini(&out);
    return exit_code;
}
