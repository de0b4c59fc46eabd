/* Prints one command's part of a shell's completion script; completion.c has the frame around it. A
 * flag with choices offers these, one for a folder or a file offers file names. */
#include <string.h>

#include "cmd/options/options.h"

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

// "auto|cuda|cuda:N" as "auto cuda": what has a number to fill in is not offered.
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
                takes(row, "DIR")    ? "folders"
                : takes(row, "FILE") ? "files"
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
                   row->type == NVLLM_PARAM_BIASES;
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
    } else if (takes(row, "FILE")) {
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
        } else if (takes(row, "FILE")) {
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
