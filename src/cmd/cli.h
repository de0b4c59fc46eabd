/* What every command shares: exit codes, error lines, and the two parameter groups that come from
 * the library's tables. A command is a function of its arguments that returns the exit code; it
 * prints its own errors. Only src/cmd ends the process, reads options or touches signals. */
#ifndef CMD_CLI_H
#define CMD_CLI_H

#include "base/err.h"
#include "cmd/options.h"
#include "nanovllm.h"

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1, // the run failed, was interrupted, or refused a request
    CLI_USAGE = 2, // the command line itself is wrong
};

int cmd_generate(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_render(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_detokenize(int argc, char **argv);
int cmd_rank(int argc, char **argv);
int cmd_completion(int argc, char **argv);
int cmd_manual(int argc, char **argv);

// Every row of the library's tables as a flag. Sampling's `seed` is left out: --seed is the
// engine's, so that equal prompts of one run may differ; a JSONL line can still set its own.
struct option_group cli_engine_group(struct nvllm_engine_options *options);
struct option_group cli_sampling_group(struct nvllm_sampling_params *params);

// Parses and deals with --help and faults. True: go on. False: return *exit_code.
bool cli_parse(struct options *options, int argc, char **argv, int *exit_code);
// "nanovllm <command>: <message>" and where to find help; returns CLI_USAGE.
int cli_usage_error(const struct options *options, const char *format, ...) PRINTF_LIKE(2, 3);
// "nanovllm: <message>"; returns CLI_FAILED.
int cli_error(const char *format, ...) PRINTF_LIKE(1, 2);
// "nanovllm: <message>" for whoever looks on: on standard error where that is a terminal, else
// nothing.
void cli_note(const char *format, ...) PRINTF_LIKE(1, 2);
// Writes a help text or version to standard output. CLI_FAILED with the reason where that fails,
// without a word where the reader went away.
int cli_print(const char *text, size_t len);
// cli_print of all that `print` writes to a file in memory.
int cli_print_whole(void (*print)(FILE *out, const void *user_data), const void *user_data);
// nvllm_engine_create; without --cache-dir, the user's cache folder is used ($XDG_CACHE_HOME/nanovllm,
// else ~/.cache/nanovllm).
MUST_USE enum status cli_engine_create(struct nvllm_engine **out,
                                       const struct nvllm_engine_options *options, struct err *err);
// The library's error as ours; passes `status` on.
enum status cli_status(enum nvllm_status status, const struct nvllm_error *error, struct err *err);

#endif
