/* `nanovllm manual`: man pages, made from the tables that parsing and --help use. */
#include <stdio.h>
#include <string.h>

#include "base/text/buf.h"
#include "cmd/commands.h"
#include "cmd/options/options.h"

static const char details[] =
    "Prints the man page nanovllm(1), or that of a command, nanovllm-COMMAND(1), in\n"
    "the language of man(7). Installing nanovllm puts them where man finds them; this\n"
    "is for reading one without: nanovllm manual generate | man -l -\n";

static void print_head(FILE *out, const char *command, const char *summary) {
    const char *dash = command[0] ? "-" : "";
    fprintf(out, ".\\\" Made by \"nanovllm manual %s\".\n", command);
    fprintf(out, ".TH NANOVLLM%s", dash);
    for (const char *c = command; *c; c++) fputc(*c - 'a' + 'A', out); // names are a to z
    // Left-aligned: lists of choices have no spaces that could be stretched.
    fprintf(out, " 1 \"\" \"nanovllm %s\" \"nanovllm\"\n.ad l\n.SH NAME\nnanovllm%s%s \\- ",
            nvllm_version(), command[0] ? "\\-" : "", command);
    roff_text(out, summary, strlen(summary));
    fputc('\n', out);
}

static void print_see_also(FILE *out, const char *command) {
    fputs(".SH SEE ALSO\n", out);
    if (command[0]) fputs(".BR nanovllm (1)", out);
    const struct cli_command *other;
    bool is_first = !command[0];
    for (size_t i = 0; (other = command_at(i)); i++) {
        if (strcmp(other->name, command) == 0) continue;
        if (!is_first) fputs(",\n", out);
        fprintf(out, ".BR nanovllm\\-%s (1)", other->name);
        is_first = false;
    }
    fputc('\n', out);
}

static void print_main_page(FILE *out) {
    print_head(out, "", "run large language models");
    fputs(".SH SYNOPSIS\n"
          "\\fBnanovllm\\fR \\fICOMMAND\\fR [options]\n"
          ".SH DESCRIPTION\n"
          "Runs the checkpoint folders of Hugging Face as they are, on CPUs or an NVIDIA GPU,\n"
          "with a paged KV cache, prefix caching, continuous batching and chunked prefill.\n"
          "A name such as Qwen/Qwen3\\-0.6B is downloaded when it is first used.\n"
          ".SH COMMANDS\n",
          out);
    const struct cli_command *command;
    for (size_t i = 0; (command = command_at(i)); i++) {
        fprintf(out, ".TP\n\\fB%s\\fR\n%s\n", command->name, command->summary);
    }
    fputs(".TP\n\\fBhelp\\fR \\fICOMMAND\\fR\nlist a command's flags\n"
          ".SH EXIT STATUS\n"
          "0 success, 1 the run failed, 2 the command line is wrong.\n"
          ".SH ENVIRONMENT\n"
          ".TP\n\\fBXDG_CACHE_HOME\\fR\n"
          "nanovllm/ in this folder keeps the GPU's kernel timings between runs; default ~/.cache\n"
          ".TP\n\\fBXDG_STATE_HOME\\fR\n"
          "nanovllm/ in this folder keeps the lines entered in a chat; default ~/.local/state\n"
          ".TP\n\\fBNO_COLOR\\fR\n"
          "if it is set, a chat does not dim the model's thinking\n"
          ".SH EXAMPLES\n"
          ".nf\n"
          "nanovllm generate \\-m MODEL \\-n 64 \"Once upon a time\"\n"
          "nanovllm chat \\-m MODEL\n"
          ".fi\n",
          out);
    print_see_also(out, "");
}

static void print_begin(FILE *out, const void *command_) {
    const struct cli_command *command = command_;
    if (command) {
        print_head(out, command->name, command->summary);
    } else {
        print_main_page(out);
    }
}

static void print_end(FILE *out, const void *command_) {
    const struct cli_command *command = command_;
    print_see_also(out, command->name);
}

int cmd_manual(int argc, char **argv) {
    struct options options = {.command = "manual", .synopsis = "[COMMAND]", .details = details};
    char names[256] = "";
    const struct cli_command *command;
    for (size_t i = 0; (command = command_at(i)); i++) {
        size_t len = strlen(names);
        snprintf(names + len, sizeof names - len, "%s%s", len ? "|" : "", command->name);
    }
    options.arg_choices = names;
    int exit_code;
    if (!cli_parse(&options, argc, argv, &exit_code)) return exit_code;
    if (options.num_args > 1) return cli_usage_error(&options, "want one command at most");
    if (!options.num_args) return cli_print_whole(print_begin, NULL);
    command = command_find(options.args[0]);
    if (!command) return command_unknown(options.args[0]);
    exit_code = cli_print_whole(print_begin, command);
    if (!exit_code) exit_code = command_print(command, OPTIONS_MAN);
    return exit_code ? exit_code : cli_print_whole(print_end, command);
}
