/* What every command shares: exit codes, error lines, the two parameter groups that come from the
 * library's tables; and what several do: say that a model is loaded, --trace, --stats, ranks under
 * mpirun. A command is a function of its arguments that returns the exit code; it prints its own
 * errors. Only src/cmd ends the process, reads options or touches signals. */
#ifndef CMD_CLI_H
#define CMD_CLI_H

#include <stdbool.h>

#include "base/err.h"
#include "base/text/buf.h"
#include "cmd/options/options.h"
#include "cmd/terminal/progress.h"
#include "nanovllm.h"

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1, // the run failed, was interrupted, or refused a request
    CLI_USAGE = 2, // the command line itself is wrong
};

int cmd_generate(int argc, char **argv);
int cmd_embed(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_run(int argc, char **argv); // chat, with the model as the first argument
int cmd_serve(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_pull(int argc, char **argv);
int cmd_render(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_detokenize(int argc, char **argv);
int cmd_schema(int argc, char **argv);
int cmd_rank(int argc, char **argv);
int cmd_completion(int argc, char **argv);
int cmd_manual(int argc, char **argv);
int cmd_version(int argc, char **argv);

// Every row of the library's tables as a flag, except sampling's `seed` and the engine's
// `download`: the command downloads models by name unless --offline is given. --seed is the
// engine's seed, so equal prompts of one run may differ. A JSONL line can still set its own.
struct option_group cli_engine_group(struct nvllm_engine_options *options);
// The same for commands whose texts people read: without --seed each run has another, which this
// draws into options->seed. The default of the library and of `bench` is 0, so that their runs are
// alike.
struct option_group cli_drawn_engine_group(struct nvllm_engine_options *options);
// --revision, --quant and --offline alone, for commands that have -m and no engine.
struct option_group cli_model_group(struct nvllm_engine_options *options);
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
// Before the program opens a device, and before it has threads: sets the variables of
// api_devices_variable, unless the user has.
void cli_begin_device(const struct nvllm_engine_options *options);
// Calls nvllm_engine_create, and shows that a load of the model `name` is under way unless the
// options have a load_progress of their own. Without --cache-dir it uses the user's cache folder,
// $XDG_CACHE_HOME/nanovllm or ~/.cache/nanovllm.
MUST_USE enum status cli_engine_create(struct nvllm_engine **out,
                                       const struct nvllm_engine_options *options, const char *name,
                                       struct err *err);
// Copies the library's error into ours; returns `status`.
enum status cli_status(enum nvllm_status status, const struct nvllm_error *error, struct err *err);
// The same for an error that is about engine options: they are named as flags are.
enum status cli_options_status(enum nvllm_status status, const struct nvllm_error *error,
                               struct err *err);

/* Says that a model is being loaded: a bar on a terminal, erased at the end; elsewhere one line,
 * for models that take longer than a moment. */

struct loading {
    struct progress progress;
    struct nvllm_load_progress callback; // for nvllm_engine_options
    char label[128]; // "Loading Qwen3-0.6B"
    const char *model; // borrowed
    bool is_told; // the line is printed, or is not needed
};

// *loading must stay where it is until the end.
void loading_begin(struct loading *loading, const char *model);
void loading_end(struct loading *loading);

// The last part of a folder's path.
const char *loading_model_name(const char *model);
// "loading Qwen3-0.6B, 596 million parameters"
void loading_sentence(char *out, size_t size, const char *name, uint64_t num_parameters);

/* --trace FILE, for every command that has it. The file is opened before the model is loaded. The
 * engine gets it when the run begins, and it is closed when the run ends. Without a path these do
 * nothing. */

#define TRACE_HELP "write each step of the engine to a file that ui.perfetto.dev shows, as JSON"

struct trace {
    const char *path; // NULL: not given
    struct nvllm_trace_file *file;
};

// ERR_INVALID: the path is a file of the model.
MUST_USE enum status trace_open(struct trace *trace, const char *model, struct err *err);
MUST_USE enum status trace_begin(struct trace *trace, struct nvllm_engine *engine, struct err *err);
// Stops observing and closes the file. An error says that steps could not be written. `engine`
// NULL: it was never made, and the file keeps its old content.
MUST_USE enum status trace_close(struct trace *trace, struct nvllm_engine *engine, struct err *err);
// Call after the engine is destroyed, if trace_close was not reached.
void trace_abandon(struct trace *trace);

/* The command under mpirun: rank 0 runs it, the other processes work for rank 0's engines. */

// Whether mpirun, or srun, has started this process as one of several.
bool mpirun_is_there(void);
// Joins the others. True: this is rank 0, which goes on with the command. False: this was another
// rank, whose work is done, or an error was printed. The process must end with *exit_code.
bool mpirun_join(int *exit_code);
// Rank 0's last call: the others end.
void mpirun_leave(void);

/* The engine's counters as a JSON object, for --stats and bench --json. */

// The counters of `after` minus those of `before` (which may be all-zero). Peaks and sizes are
// those of `after`.
struct nvllm_stats stats_since(const struct nvllm_stats *before, const struct nvllm_stats *after);
// Appends the members, one per line with `indent` spaces, without braces or a last comma.
MUST_USE enum status stats_json_members(struct buf *out, const struct nvllm_stats *stats,
                                        double total_seconds, int indent, struct err *err);

#endif
