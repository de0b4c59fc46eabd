/* The files of a model, as the hub or the cache lists them, and which of them are needed.
 *
 * A model in safetensors needs its configuration, its tokenizer, its chat templates and
 * model.safetensors, or else the shards that model.safetensors.index.json names. A model in GGUF is
 * one file, or one file in several parts. Files of other programs are left out. */
#ifndef HUB_HUB_FILES_H
#define HUB_HUB_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "hub/hub_name.h"

#define HUB_INDEX_NAME "model.safetensors.index.json"

// What a caller reads: all of a model, or its texts without weights.
enum hub_want { HUB_WANT_MODEL, HUB_WANT_TEXTS };

enum { HUB_FILES_MAX = 20000 }; // in a list

struct hub_file {
    char *name; // "config.json", "Q4_K_M/model-00001-of-00002.gguf"
    bool is_wanted;
};

// All-zero is an empty list.
struct hub_files {
    struct hub_file *items; // [count], with different names
    size_t count, capacity;
};

void hub_files_fini(struct hub_files *files);
// Copies the name. ERR_INVALID: there are HUB_FILES_MAX already.
MUST_USE enum status hub_files_add(struct hub_files *files, const char *name, struct err *err);
void hub_files_sort(struct hub_files *files); // by name; call it before what follows
struct hub_file *hub_files_find(const struct hub_files *files, const char *name); // NULL: none
// A model's texts, read by this engine or by others that share the cache: all that it needs but its
// weights.
bool hub_file_is_text(const char *name);
// "config.json, model.bin, ... and 12 more": for messages.
void hub_files_describe(const struct hub_files *files, char *out, size_t size);

// Reads the quantization from the name of a GGUF file, or of a part of one: "Q4_K_M". False: the
// name is none of a GGUF file.
bool hub_files_read_quant(char quant[HUB_QUANT_MAX], const char *name);
// Marks the GGUF file of that quantization as wanted, or all its parts that are in the list, even
// if other parts are missing. Returns how many.
size_t hub_files_want_there(struct hub_files *files, const char *quant);

struct hub_choice {
    bool is_gguf;
    const char *gguf; // the file to open, borrowed from the list; NULL unless is_gguf
    bool has_shards; // the index is wanted, and names more files: hub_files_want_shards
};

// Sets is_wanted, and *choice. `quant` picks a GGUF file: "Q4_K_M", or a whole file name; "": the
// model's safetensors, else a GGUF file of a usual size. ERR_IO: the list has no such file, with
// the names to choose from. `what` names the list in messages.
MUST_USE enum status hub_files_choose(struct hub_files *files, const char *quant,
                                      enum hub_want want, struct hub_choice *choice,
                                      const char *what, struct err *err);
// Wants the shards that the text of the index names. ERR_FORMAT: the text is no index. ERR_IO: a
// shard is not in the list.
MUST_USE enum status hub_files_want_shards(struct hub_files *files, const char *index, size_t len,
                                           const char *what, struct err *err);

#endif
