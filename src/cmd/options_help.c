/* --help from the same tables that parsing uses, wrapped to 80 columns. */
#include <float.h>
#include <string.h>

#include "cmd/options.h"

enum { HELP_COLUMN = 32, HELP_WIDTH = 80 };

// What stands for the value in the flag's line.
static const char *value_name(const struct nvllm_param *row) {
    static const struct {
        const char *row, *value;
    } names[] = {{"model", "DIR"},
                 {"input", "FILE"},
                 {"output", "FILE"},
                 {"stats", "FILE"},
                 {"load", "FILE"},
                 {"chat_template", "FILE"},
                 {"chat_template_kwargs", "JSON"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i].row, row->name) == 0) return names[i].value;
    }
    switch (row->type) {
    case NVLLM_PARAM_INT:
    case NVLLM_PARAM_INT64:
        return "N";
    case NVLLM_PARAM_FLOAT:
    case NVLLM_PARAM_DOUBLE:
        return "X";
    case NVLLM_PARAM_BOOL:
        return NULL;
    case NVLLM_PARAM_STRING:
        return row->choices ? "NAME" : "TEXT";
    case NVLLM_PARAM_STRINGS:
        return "TEXT";
    case NVLLM_PARAM_IDS:
        return "ID,...";
    case NVLLM_PARAM_BIASES:
        return "ID=X,...";
    }
    return NULL;
}

static void append(char *out, size_t size, const char *text) {
    size_t len = strlen(out);
    snprintf(out + len, size - len, "%s", text);
}

static void append_dashed(char *out, size_t size, const char *name) {
    size_t len = strlen(out);
    snprintf(out + len, size - len, "%s", name);
    for (char *c = out + len; *c; c++) {
        if (*c == '_') *c = '-';
    }
}

static void flag_text(char *out, size_t size, const struct nvllm_param *row) {
    const char letter[] = {options_short_flag(row), '\0'};
    snprintf(out, size, "  %s%s%s--", letter[0] ? "-" : "", letter, letter[0] ? ", " : "");
    if (row->type == NVLLM_PARAM_BOOL && strncmp(row->name, "enable_", 7) == 0) {
        append(out, size, "[enable|disable]-");
        append_dashed(out, size, row->name + 7);
    } else {
        if (row->type == NVLLM_PARAM_BOOL) append(out, size, "[no-]");
        append_dashed(out, size, row->name);
    }
    const char *value = value_name(row);
    if (!value) return;
    append(out, size, " ");
    append(out, size, value);
}

// The accepted values after the help text, where the table limits them.
static void append_range(char *out, size_t size, const struct nvllm_param *row) {
    char range[160] = "";
    bool number = row->type == NVLLM_PARAM_INT || row->type == NVLLM_PARAM_INT64 ||
                  row->type == NVLLM_PARAM_FLOAT || row->type == NVLLM_PARAM_DOUBLE;
    bool has_min = number && row->min > -2147483647.0;
    bool has_max = number && row->max < 2147483647.0;
    // The tables write "above 0" as the smallest float.
    bool above_zero = row->type == NVLLM_PARAM_FLOAT && row->min == (double)FLT_MIN;
    if (row->choices) {
        snprintf(range, sizeof range, " {%s}", row->choices);
    } else if (above_zero && has_max) {
        snprintf(range, sizeof range, " [above 0 to %.10g]", row->max);
    } else if (has_min && has_max) {
        snprintf(range, sizeof range, " [%.10g to %.10g]", row->min, row->max);
    } else if (has_min) {
        snprintf(range, sizeof range, " [%.10g or more]", row->min);
    } else if (has_max) {
        snprintf(range, sizeof range, " [at most %.10g]", row->max);
    }
    append(out, size, range);
}

// Prints `text` word by word between the columns; the cursor is at `column`.
static void print_wrapped(FILE *out, const char *text, int column) {
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + word > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        int space = column > HELP_COLUMN;
        fprintf(out, "%s%.*s", space ? " " : "", word, text);
        column += word + space;
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void print_row(FILE *out, const struct nvllm_param *row) {
    char flag[120], text[640];
    flag_text(flag, sizeof flag, row);
    snprintf(text, sizeof text, "%s", row->help ? row->help : "");
    append_range(text, sizeof text, row);
    int used = fprintf(out, "%s", flag);
    if (used + 2 > HELP_COLUMN) {
        fputc('\n', out);
        used = 0;
    }
    fprintf(out, "%*s", HELP_COLUMN - used, "");
    print_wrapped(out, text, HELP_COLUMN);
}

void options_print_help(const struct options *options, FILE *out) {
    fprintf(out, "Usage: nanovllm %s %s\n", options->command, options->synopsis);
    if (options->details) fprintf(out, "\n%s", options->details);
    for (size_t g = 0; g < options->num_groups; g++) {
        const struct option_group *group = &options->groups[g];
        fprintf(out, "\n%s:\n", group->title);
        const struct nvllm_param *row;
        for (size_t i = 0; (row = group->row(i)); i++) {
            if (!group->hidden || strcmp(group->hidden, row->name) != 0) print_row(out, row);
        }
    }
    if (options->epilogue) fprintf(out, "\n%s", options->epilogue);
}
