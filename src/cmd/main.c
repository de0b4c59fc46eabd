/* The nanovllm command: picks one of the commands and returns its exit code. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/os/write_whole.h"
#include "base/text/buf.h"
#include "base/text/suggest.h"
#include "cmd/cli.h"
#include "cmd/commands.h"
#include "cmd/options/options.h"

// ---- the table ----

static const struct cli_command commands[] = {
    {"generate", "complete prompts with a model", cmd_generate},
    {"chat", "talk with a model", cmd_chat},
    {"embed", "turn texts into vectors with a model", cmd_embed},
    {"serve", "serve a model over HTTP in OpenAI's form", cmd_serve},
    {"bench", "measure a model's speed on a fixed workload", cmd_bench},
    {"inspect", "show a model's shape and memory plan without loading it", cmd_inspect},
    {"pull", "download a model by its name", cmd_pull},
    {"list", "list the models of the Hugging Face cache", cmd_list},
    {"rm", "remove a model from the Hugging Face cache", cmd_rm},
    {"render", "show the prompt that a chat template makes of a chat", cmd_render},
    {"tokenize", "text to token ids", cmd_tokenize},
    {"detokenize", "token ids to text", cmd_detokenize},
    {"schema", "check what of a JSON schema is enforced, and which texts fit", cmd_schema},
    {"completion", "print the completion script of a shell", cmd_completion},
    {"manual", "print the man page of a command", cmd_manual},
    {"version", "print version, devices and build options", cmd_version},
};

const struct cli_command *command_at(size_t index) {
    return index < ARRAY_LEN(commands) ? &commands[index] : NULL;
}

const struct cli_command *command_find(const char *name) {
    // As ollama has it. Not in the list, which has chat.
    static const struct cli_command run_command = {"run", "talk with a model", cmd_run};
    if (strcmp(name, run_command.name) == 0) return &run_command;
    if (strcmp(name, "ls") == 0) name = "list";
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    }
    return NULL;
}

int command_unknown(const char *name) {
    const char *names[ARRAY_LEN(commands) + 1] = {"help"};
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) names[i + 1] = commands[i].name;
    const char *instead = foreign_command(name);
    const char *nearest = suggest_nearest(name, names, ARRAY_LEN(names));
    if (instead) {
        cli_error("unknown command %s: %s", name, instead);
    } else if (nearest) {
        cli_error("unknown command %s; did you mean %s? Try 'nanovllm help'", name, nearest);
    } else {
        cli_error("unknown command %s; try 'nanovllm help'", name);
    }
    return CLI_USAGE;
}

int command_print(const struct cli_command *command, enum options_form form) {
    char flag[32];
    snprintf(flag, sizeof flag, "--help=%s", options_form_name(form));
    char *help[] = {flag, NULL};
    return command->run(1, help);
}

// ---- the program ----

static enum status format_overview(struct buf *out, struct err *err) {
    enum status status =
        buf_append_str(out,
                       "nanovllm runs large language models: paged KV cache, prefix caching, "
                       "continuous batching.\n\nUsage: nanovllm COMMAND [options]\n\nCommands:\n",
                       err);
    const struct cli_command *command;
    for (size_t i = 0; !status && (command = command_at(i)); i++) {
        status = buf_appendf(out, err, "  %-12s%s\n", command->name, command->summary);
    }
    if (status) return status;
    return buf_appendf(out, err,
                       "  %-12s%s\n\nExample:\n"
                       "  nanovllm chat -m Qwen/Qwen3-0.6B\n"
                       "\nExit status: 0 success, 1 the run failed, 2 the command line is wrong.\n",
                       "help", "help on a command: nanovllm help COMMAND");
}

// On standard output if the user asked for it, else on standard error.
static int print_overview(bool is_asked_for) {
    struct buf out = {0};
    struct err err = {0};
    int exit_code = CLI_USAGE;
    if (format_overview(&out, &err)) {
        exit_code = cli_error("%s", err.message);
    } else if (is_asked_for) {
        exit_code = cli_print(out.data, out.len);
    } else {
        write_whole(STDERR_FILENO, out.data, out.len);
    }
    buf_fini(&out);
    return exit_code;
}

// If a standard descriptor is closed, the next opened file would get its number, and messages or
// results would land in that file. So /dev/null takes its place. It is opened for the wrong
// direction, so that using the descriptor still fails.
static int fill_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) continue;
        int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        // There is no standard error to print to.
        if (open("/dev/null", flags) != fd) return CLI_FAILED;
    }
    return CLI_OK;
}

static int print_help(int argc, char **argv) {
    if (argc == 0) return print_overview(true);
    const struct cli_command *command = command_find(argv[0]);
    return command ? command_print(command, OPTIONS_HELP) : command_unknown(argv[0]);
}

static int run(int argc, char **argv) {
    // A closed pipe becomes an error of the write instead of ending the process, so that other
    // result files are still closed properly.
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); // the same for the file size limit
    if (argc < 2) return print_overview(false);
    const char *name = argv[1];
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        return print_help(argc - 2, argv + 2);
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) return version_print_short();
    if (strcmp(name, "rank") == 0) return cmd_rank(argc - 2, argv + 2);
    const struct cli_command *command = command_find(name);
    return command ? command->run(argc - 2, argv + 2) : command_unknown(name);
}

int main(int argc, char **argv) {
    if (fill_descriptors()) return CLI_FAILED;
    // A rank that an engine has started does not join mpirun's, although it inherits mpirun's
    // environment.
    bool is_rank = argc > 1 && strcmp(argv[1], "rank") == 0;
    if (is_rank || !mpirun_is_there()) return run(argc, argv);
    int exit_code;
    if (!mpirun_join(&exit_code)) return exit_code;
    exit_code = run(argc, argv);
    mpirun_leave();
    return exit_code;
}
