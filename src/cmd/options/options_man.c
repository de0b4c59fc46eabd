/* Prints the part of a command's man page that is made from its options: all after NAME. */
#include <string.h>

#include "cmd/options/options.h"
#include "cmd/options/roff.h"

static void print_bold(FILE *out, const char *text) {
    fputs("\\fB", out);
    roff_text(out, text, strlen(text));
    fputs("\\fR", out);
}

static void print_row(FILE *out, const struct nvllm_param *row) {
    char flags[OPTION_SPELLINGS_MAX][OPTION_FLAG_BYTES_MAX], range[160];
    size_t count = option_spellings(row, flags);
    fputs(".TP\n", out);
    if (option_letter(row)) fprintf(out, "\\fB\\-%c\\fR, ", option_letter(row));
    // The third spelling is never shown.
    for (size_t i = 0; i < count && i < 2; i++) {
        if (i) fputs(", ", out);
        print_bold(out, flags[i]);
    }
    const char *value = option_value_name(row);
    if (value) fprintf(out, " \\fI%s\\fR", value);
    fputc('\n', out);
    if (row->help) roff_text(out, row->help, strlen(row->help));
    option_range(row, range, sizeof range);
    if (range[0]) fputc(' ', out);
    roff_text(out, range, strlen(range));
    fputc('\n', out);
}

void options_print_man(const struct options *options, FILE *out) {
    fputs(".SH SYNOPSIS\n\\fBnanovllm ", out);
    fprintf(out, "%s\\fR ", options->command);
    roff_text(out, options->synopsis, strlen(options->synopsis));
    fputc('\n', out);
    if (options->details) {
        fputs(".SH DESCRIPTION\n", out);
        roff_paragraphs(out, options->details);
    }
    if (options->num_groups) fputs(".SH OPTIONS\n", out);
    for (size_t g = 0; g < options->num_groups; g++) {
        const struct option_group *group = &options->groups[g];
        if (options->num_groups > 1) fprintf(out, ".SS %s\n", group->title);
        const struct nvllm_param *row;
        for (size_t i = 0; (row = option_group_next(group, &i));) print_row(out, row);
    }
    if (!options->epilogue) return;
    fputs(".SH NOTES\n", out);
    roff_paragraphs(out, options->epilogue);
}
