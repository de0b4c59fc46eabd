/* Prints --help from the tables that parsing uses, wrapped to 80 columns. */
#include <string.h>

#include "cmd/options/options.h"

enum { HELP_COLUMN = 32, HELP_WIDTH = 80 };

// Returns the number of columns.
static int print_flag(FILE *out, const struct nvllm_param *row) {
    char flags[OPTION_SPELLINGS_MAX][OPTION_FLAG_BYTES_MAX];
    size_t count = option_spellings(row, flags);
    const char *value = option_value_name(row), *first = flags[0];
    int used =
        option_letter(row) ? fprintf(out, "  -%c, ", option_letter(row)) : fprintf(out, "  ");
    if (count == 1) used += fprintf(out, "%s", first);
    if (count == 2) used += fprintf(out, "--[no-]%s", first + strlen("--"));
    if (count == 3) used += fprintf(out, "--[enable|disable]-%s", first + strlen("--enable-"));
    return value ? used + fprintf(out, " %s", value) : used;
}

// The part of `text` that stays on one line: a word or, of a list of choices wider than a line, as
// many choices as fit.
static int unbroken(const char *text) {
    int word = (int)strcspn(text, " "), fitting = HELP_WIDTH - HELP_COLUMN;
    if (word <= fitting) return word;
    while (fitting > 0 && text[fitting - 1] != '|') fitting--;
    return fitting > 0 ? fitting : word;
}

// Prints `text` wrapped between HELP_COLUMN and HELP_WIDTH; the cursor is at HELP_COLUMN.
static void print_wrapped(FILE *out, const char *text) {
    int column = HELP_COLUMN, space = 0;
    while (*text) {
        int width = unbroken(text);
        if (column > HELP_COLUMN && column + space + width > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
            space = 0;
        }
        fprintf(out, "%*s%.*s", space, "", width, text);
        column += space + width;
        text += width;
        space = *text == ' ';
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void print_row(FILE *out, const struct nvllm_param *row) {
    char range[160], text[640];
    option_range(row, range, sizeof range);
    snprintf(text, sizeof text, "%s %s", row->help ? row->help : "", range);
    int used = print_flag(out, row);
    if (used + 2 > HELP_COLUMN) {
        fputc('\n', out);
        used = 0;
    }
    fprintf(out, "%*s", HELP_COLUMN - used, "");
    print_wrapped(out, text);
}

void options_print_help(const struct options *options, FILE *out) {
    fprintf(out, "Usage: nanovllm %s %s\n", options->command, options->synopsis);
    if (options->details) fprintf(out, "\n%s", options->details);
    for (size_t g = 0; g < options->num_groups; g++) {
        const struct option_group *group = &options->groups[g];
        fprintf(out, "\n%s:\n", group->title);
        const struct nvllm_param *row;
        for (size_t i = 0; (row = option_group_next(group, &i));) print_row(out, row);
    }
    if (options->epilogue) fprintf(out, "\n%s", options->epilogue);
}
