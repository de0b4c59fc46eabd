/* The nanovllm command: picks one of the commands and returns its exit code. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/suggest.h"
#include "base/write_whole.h"
#include "cmd/cli.h"

static const struct cli_command commands[] = {
    {"generate", "complete prompts with a model", cmd_generate},
    {"chat", "talk with a model", cmd_chat},
    {"bench", "measure a model's speed on a fixed workload", cmd_bench},
    {"inspect", "show a model's shape and memory plan without loading it", cmd_inspect},
    {"render", "show the prompt that a chat becomes", cmd_render},
    {"tokenize", "text to token ids", cmd_tokenize},
    {"detokenize", "token ids to text", cmd_detokenize},
};
enum { NUM_COMMANDS = sizeof commands / sizeof commands[0] };

static enum status format_overview(struct buf *out, struct err *err) {
    enum status status =
        buf_append_str(out,
                       "nanovllm runs large language models: paged KV cache, prefix caching, "
                       "continuous batching.\n\nUsage: nanovllm COMMAND [options]\n\nCommands:\n",
                       err);
    for (size_t i = 0; i < NUM_COMMANDS && !status; i++) {
        status = buf_appendf(out, err, "  %-12s%s\n", commands[i].name, commands[i].summary);
    }
    if (status) return status;
    return buf_appendf(out, err,
                       "  %-12s%s\n  %-12s%s\n\nExample:\n"
                       "  nanovllm generate -m models/tiny-qwen3 \"Once upon a time\"\n"
                       "\nExit status: 0 success, 1 the run failed, 2 the command line is wrong.\n",
                       "version", "print the version", "help",
                       "help on a command: nanovllm help COMMAND");
}

// To standard output for whoever asked for it, else to standard error.
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

static int print_version(void) {
    char text[64];
    int len = snprintf(text, sizeof text, "nanovllm %s\n", nvllm_version());
    return cli_print(text, (size_t)len);
}

static const struct cli_command *find_command(const char *name) {
    for (size_t i = 0; i < NUM_COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    }
    return NULL;
}

static int unknown_command(const char *name) {
    const char *names[NUM_COMMANDS + 2] = {"version", "help"};
    for (size_t i = 0; i < NUM_COMMANDS; i++) names[i + 2] = commands[i].name;
    const char *nearest = suggest_nearest(name, names, NUM_COMMANDS + 2);
    if (nearest) {
        cli_error("unknown command %s; did you mean %s? Try 'nanovllm help'", name, nearest);
    } else {
        cli_error("unknown command %s; try 'nanovllm help'", name);
    }
    return CLI_USAGE;
}

// A missing standard descriptor would be given to the next file that is opened, and messages or
// results would land in it. /dev/null takes its place, opened the wrong way round, so that using
// what is not there is still a fault.
static int fill_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) continue;
        int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        if (open("/dev/null", flags) != fd) return CLI_FAILED; // nowhere to say so
    }
    return CLI_OK;
}

static int print_help(int argc, char **argv) {
    if (argc == 0) return print_overview(true);
    const struct cli_command *command = find_command(argv[0]);
    if (!command) return unknown_command(argv[0]);
    char flag[] = "--help";
    char *help[] = {flag, NULL};
    return command->run(1, help);
}

int main(int argc, char **argv) {
    if (fill_descriptors()) return CLI_FAILED;
    // A reader that went away is an error of that write, not the end of the process: results in
    // other files are still closed properly.
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); // the limit of a file's size, likewise
    if (argc < 2) return print_overview(false);
    const char *name = argv[1];
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        return print_help(argc - 2, argv + 2);
    }
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        return print_version();
    }
    const struct cli_command *command = find_command(name);
    return command ? command->run(argc - 2, argv + 2) : unknown_command(name);
}
