/* Prints what the tables that parsing uses say: --help, wrapped to 80 columns, man pages, and a
 * command's part of the shells' completions. */
#include <stdbool.h>
#include <string.h>

#include "cmd/options/options.h"

// ---- roff ----

void roff_text(FILE *out, const char *text, size_t len) {
    // A line that starts with one of these would be a roff request.
    if (len && (text[0] == '.' || text[0] == '\'')) fputs("\\&", out);
    for (size_t i = 0; i < len; i++) {
        switch (text[i]) {
        case '\\':
            fputs("\\e", out);
            break;
        case '-':
            fputs("\\-", out);
            break;
        case '\'':
            fputs("\\(aq", out); // a plain ' is printed as a right quote
            break;
        case '`':
            fputs("\\(ga", out);
            break;
        case '^':
            fputs("\\(ha", out);
            break;
        case '~':
            fputs("\\(ti", out);
            break;
        case '|':
            fputs("|\\:", out); // a line may end between the choices of a list
            break;
        default:
            fputc(text[i], out);
        }
    }
}

static bool has_columns(const char *text, size_t len) {
    for (size_t i = 0; i + 1 < len; i++) {
        bool starts_line = i == 0 || text[i - 1] == '\n';
        if (text[i] == ' ' && (text[i + 1] == ' ' || starts_line)) return true;
    }
    return false;
}

static void print_lines(FILE *out, const char *text, size_t len) {
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t line_len = end ? (size_t)(end - text) - at : len - at;
        roff_text(out, text + at, line_len);
        fputc('\n', out);
        at += line_len + 1;
    }
}

void roff_paragraphs(FILE *out, const char *text) {
    bool is_first = true;
    while (*text) {
        const char *blank = strstr(text, "\n\n");
        size_t len = blank ? (size_t)(blank - text) + 1 : strlen(text);
        if (!is_first) fputs(".PP\n", out);
        bool as_it_is = has_columns(text, len);
        if (as_it_is) fputs(".nf\n", out);
        print_lines(out, text, len);
        if (as_it_is) fputs(".fi\n", out);
        is_first = false;
        text += len;
        text += strspn(text, "\n");
    }
}

// ---- --help ----

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
    const char *gap = options->synopsis[0] ? " " : "";
    fprintf(out, "Usage: nanovllm %s%s%s\n", options->command, gap, options->synopsis);
    if (options->details) fprintf(out, "\n%s", options->details);
    for (size_t g = 0; g < options->num_groups; g++) {
        const struct option_group *group = &options->groups[g];
        fprintf(out, "\n%s:\n", group->title);
        const struct nvllm_param *row;
        for (size_t i = 0; (row = option_group_next(group, &i));) print_row(out, row);
    }
    if (options->epilogue) fprintf(out, "\n%s", options->epilogue);
}

// ---- man pages ----

static void print_bold(FILE *out, const char *text) {
    fputs("\\fB", out);
    roff_text(out, text, strlen(text));
    fputs("\\fR", out);
}

static void print_man_row(FILE *out, const struct nvllm_param *row) {
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
        for (size_t i = 0; (row = option_group_next(group, &i));) print_man_row(out, row);
    }
    if (!options->epilogue) return;
    fputs(".SH NOTES\n", out);
    roff_paragraphs(out, options->epilogue);
}

// ---- completion ----

enum { SPELLINGS_SHOWN = 2 };

static size_t shown_spellings(const struct nvllm_param *row,
                              char flags[OPTION_SPELLINGS_MAX][OPTION_FLAG_BYTES_MAX]) {
    size_t count = option_spellings(row, flags);
    return count < SPELLINGS_SHOWN ? count : SPELLINGS_SHOWN;
}

static bool takes(const struct nvllm_param *row, const char *value_name) {
    const char *own = option_value_name(row);
    return own && strcmp(own, value_name) == 0;
}

// A model is a folder, or a file.
static bool is_any_path(const struct nvllm_param *row) {
    return takes(row, "FILE") || takes(row, "MODEL");
}

// "auto|gpu|gpu:N" as "auto gpu": what has a number to fill in is not offered.
static void print_choices(FILE *out, const char *choices) {
    const char *space = "";
    for (const char *c = choices; *c; c += *c == '|') {
        size_t len = strcspn(c, "|");
        bool is_whole = len < 2 || memcmp(c + len - 2, ":N", 2) != 0;
        if (is_whole) fprintf(out, "%s%.*s", space, (int)len, c);
        if (is_whole) space = " ";
        c += len;
    }
}

// Prints the help up to its first semicolon. A backslash escapes each character of `special`, and
// quotes are replaced so that the text can stand in quotes.
static void print_summary(FILE *out, const char *help, const char *special, const char *quote) {
    for (size_t i = 0; help[i] && help[i] != ';'; i++) {
        if (help[i] == '\'') {
            fputs(quote, out);
            continue;
        }
        if (strchr(special, help[i])) fputc('\\', out);
        fputc(help[i], out);
    }
}

// ---- bash ----

static void print_bash_row(FILE *out, const struct nvllm_param *row) {
    char flags[OPTION_SPELLINGS_MAX][OPTION_FLAG_BYTES_MAX];
    if (row->type == NVLLM_PARAM_BOOL) return; // takes no value
    option_spellings(row, flags);
    fputs("    ", out);
    if (option_letter(row)) fprintf(out, "-%c | ", option_letter(row));
    fprintf(out, "%s) ", flags[0]);
    if (row->choices) {
        fputs("value=words words='", out);
        print_choices(out, row->choices);
        fputs("'", out);
    } else {
        fprintf(out, "value=%s",
                takes(row, "DIR")  ? "folders"
                : is_any_path(row) ? "files"
                                   : "any");
    }
    fputs(" ;;\n", out);
}

void options_print_bash(const struct options *options, FILE *out) {
    char flags[OPTION_SPELLINGS_MAX][OPTION_FLAG_BYTES_MAX];
    const struct nvllm_param *row;
    fprintf(out, "_nanovllm_%s() {\n    flags='--help", options->command);
    for (size_t g = 0; g < options->num_groups; g++) {
        for (size_t i = 0; (row = option_group_next(&options->groups[g], &i));) {
            size_t count = shown_spellings(row, flags);
            for (size_t k = 0; k < count; k++) fprintf(out, " %s", flags[k]);
        }
    }
    fputs("'\n    case $1 in\n", out);
    for (size_t g = 0; g < options->num_groups; g++) {
        for (size_t i = 0; (row = option_group_next(&options->groups[g], &i));) {
            print_bash_row(out, row);
        }
    }
    fputs("    esac\n", out);
    if (options->arg_choices) {
        fputs("    arguments='", out);
        print_choices(out, options->arg_choices);
        fputs("'\n", out);
    }
    fputs("}\n\n", out);
}

// ---- zsh ----

// One spec of _arguments: '(-m --model)'{-m,--model=}'[help]:DIR:_files -/'
static void print_zsh_row(FILE *out, const struct nvllm_param *row, const char *flag, char letter) {
    bool is_list = row->type == NVLLM_PARAM_STRINGS || row->type == NVLLM_PARAM_IDS ||
                   row->type == NVLLM_PARAM_BIASES || row->type == NVLLM_PARAM_JSON;
    const char *value = option_value_name(row), *equals = value ? "=" : "";
    fputs("        ", out);
    if (letter && is_list) {
        fprintf(out, "'*'{-%c,%s%s}'", letter, flag, equals);
    } else if (letter) {
        fprintf(out, "'(-%c %s)'{-%c,%s%s}'", letter, flag, letter, flag, equals);
    } else {
        fprintf(out, "'%s%s%s", is_list ? "*" : "", flag, equals);
    }
    fputc('[', out);
    print_summary(out, row->help, "[]:\\", "'\\''");
    fputc(']', out);
    if (value) fprintf(out, ":%s:", value);
    if (row->choices) {
        fputc('(', out);
        print_choices(out, row->choices);
        fputc(')', out);
    } else if (takes(row, "DIR")) {
        fputs("_files -/", out);
    } else if (is_any_path(row)) {
        fputs("_files", out);
    }
    fputs("' \\\n", out);
}

void options_print_zsh(const struct options *options, FILE *out) {
    char flags[OPTION_SPELLINGS_MAX][OPTION_FLAG_BYTES_MAX];
    fprintf(out, "_nanovllm_%s() {\n    _arguments \\\n", options->command);
    for (size_t g = 0; g < options->num_groups; g++) {
        const struct nvllm_param *row;
        for (size_t i = 0; (row = option_group_next(&options->groups[g], &i));) {
            size_t count = shown_spellings(row, flags);
            for (size_t k = 0; k < count; k++) {
                print_zsh_row(out, row, flags[k], k ? '\0' : option_letter(row));
            }
        }
    }
    fputs("        '(- *)--help[show the help]' \\\n        '*:argument:", out);
    if (options->arg_choices) {
        fputc('(', out);
        print_choices(out, options->arg_choices);
        fputc(')', out);
    }
    fputs("'\n}\n\n", out);
}

// ---- fish ----

static void print_fish_row(FILE *out, const char *command, const struct nvllm_param *row) {
    char flags[OPTION_SPELLINGS_MAX][OPTION_FLAG_BYTES_MAX];
    size_t count = shown_spellings(row, flags);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "complete -c nanovllm -n '__nanovllm_is %s'", command);
        if (i == 0 && option_letter(row)) fprintf(out, " -s %c", option_letter(row));
        fprintf(out, " -l %s", flags[i] + strlen("--"));
        if (row->choices) {
            fputs(" -x -a '", out);
            print_choices(out, row->choices);
            fputc('\'', out);
        } else if (takes(row, "DIR")) {
            fputs(" -x -a '(__fish_complete_directories)'", out);
        } else if (is_any_path(row)) {
            fputs(" -r -F", out);
        } else if (option_value_name(row)) {
            fputs(" -x", out);
        }
        fputs(" -d '", out);
        print_summary(out, row->help, "\\", "\\'");
        fputs("'\n", out);
    }
}

void options_print_fish(const struct options *options, FILE *out) {
    for (size_t g = 0; g < options->num_groups; g++) {
        const struct nvllm_param *row;
        for (size_t i = 0; (row = option_group_next(&options->groups[g], &i));) {
            print_fish_row(out, options->command, row);
        }
    }
    fprintf(out, "complete -c nanovllm -n '__nanovllm_is %s' -l help -d 'show the help'\n",
            options->command);
    if (!options->arg_choices) return;
    fprintf(out, "complete -c nanovllm -n '__nanovllm_is %s' -a '", options->command);
    print_choices(out, options->arg_choices);
    fputs("'\n", out);
}
