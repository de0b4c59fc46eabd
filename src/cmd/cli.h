/* What every command shares: exit codes, error lines, and the two parameter groups that come from
 * the library's tables. A command is a function of its arguments that returns the exit code; it
 * prints its own errors. Only src/cmd ends the process, reads options or touches signals. */
#ifndef CMD_CLI_H
#define CMD_CLI_H

#include "base/err.h"
#include "cmd/options/options.h"
#include "nanovllm.h"

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1, // the run failed, was interrupted, or refused a request
    CLI_USAGE = 2, // the command line itself is wrong
};

int cmd_generate(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_render(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_detokenize(int argc, char **argv);
int cmd_rank(int argc, char **argv);
int cmd_completion(int argc, char **argv);
int cmd_manual(int argc, char **argv);

// Every row of the library's tables as a flag, except sampling's `seed`. --seed is the engine's
// seed, so equal prompts of one run may differ. A JSONL line can still set its own.
struct option_group cli_engine_group(struct nvllm_engine_options *options);
// The same for commands whose texts people read: without --seed each run has another, which this
// draws into options->seed. The default of the library and of `bench` is 0, so that their runs are
// alike.
struct option_group cli_drawn_engine_group(struct nvllm_engine_options *options);
struct option_group cli_sampling_group(struct nvllm_sampling_params *params);

// Parses the flags, and prints --help or the error. True: go on. False: return *exit_code.
bool cli_parse(struct options *options, int argc, char **argv, int *exit_code);
// "nanovllm <command>: <message>" and where to find help; returns CLI_USAGE.
int cli_usage_error(const struct options *options, const char *format, ...) PRINTF_LIKE(2, 3);
// "nanovllm: <message>"; returns CLI_FAILED.
int cli_error(const char *format, ...) PRINTF_LIKE(1, 2);
void cli_say(const char *format, ...) PRINTF_LIKE(1, 2); // the same for what is no error
// Prints "nanovllm: <message>" to standard error if that is a terminal, else nothing.
void cli_note(const char *format, ...) PRINTF_LIKE(1, 2);
// Writes a help text or version to standard output. CLI_FAILED: writing failed. The reason is
// printed, unless the reader closed the pipe.
int cli_print(const char *text, size_t len);
// Calls `print` with a file in memory, then cli_print with its content.
int cli_print_whole(void (*print)(FILE *out, const void *user_data), const void *user_data);
// Calls nvllm_engine_create, and shows that a load is under way unless the options have a
// load_progress of their own. Without --cache-dir it uses the user's cache folder,
// $XDG_CACHE_HOME/nanovllm or ~/.cache/nanovllm.
MUST_USE enum status cli_engine_create(struct nvllm_engine **out,
                                       const struct nvllm_engine_options *options, struct err *err);
// Copies the library's error into ours; returns `status`.
enum status cli_status(enum nvllm_status status, const struct nvllm_error *error, struct err *err);
// The same for an error that is about engine options: they are named as flags are.
enum status cli_options_status(enum nvllm_status status, const struct nvllm_error *error,
                               struct err *err);

#endif
