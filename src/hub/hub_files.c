#include "hub/hub_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/os/file.h"
#include "base/text/c_locale.h"

#define SINGLE_NAME "model.safetensors"
#define TEMPLATES_FOLDER "additional_chat_templates/"

void hub_files_fini(struct hub_files *files) {
    for (size_t i = 0; i < files->count; i++) free(files->items[i].name);
    free(files->items);
    *files = (struct hub_files){0};
}

enum status hub_files_add(struct hub_files *files, const char *name, struct err *err) {
    if (files->count == HUB_FILES_MAX) {
        return err_set(err, ERR_INVALID, "there are more than %d files", HUB_FILES_MAX);
    }
    if (files->count == files->capacity) {
        size_t capacity = files->capacity ? 2 * files->capacity : 32;
        struct hub_file *items = realloc(files->items, capacity * sizeof *items);
        if (!items) return err_nomem(err, "list of files");
        files->items = items;
        files->capacity = capacity;
    }
    char *copy = strdup(name);
    if (!copy) return err_nomem(err, "list of files");
    files->items[files->count++] = (struct hub_file){.name = copy};
    return OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct hub_file *)a)->name, ((const struct hub_file *)b)->name);
}

void hub_files_sort(struct hub_files *files) {
    if (files->count) qsort(files->items, files->count, sizeof *files->items, compare_names);
}

static int compare_with_name(const void *name, const void *file) {
    return strcmp(name, ((const struct hub_file *)file)->name);
}

struct hub_file *hub_files_find(const struct hub_files *files, const char *name) {
    if (!files->count) return NULL;
    return bsearch(name, files->items, files->count, sizeof *files->items, compare_with_name);
}

void hub_files_describe(const struct hub_files *files, char *out, size_t size) {
    enum { NAMED_MAX = 6 };
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < files->count && i < NAMED_MAX && len < size; i++) {
        int n = snprintf(out + len, size - len, "%s%.60s", i ? ", " : "", files->items[i].name);
        len += n > 0 ? (size_t)n : 0;
    }
    if (files->count > NAMED_MAX && len < size) {
        snprintf(out + len, size - len, " and %zu more", files->count - NAMED_MAX);
    }
}

// ---- texts ----

bool hub_file_is_text(const char *name) {
    static const char *const names[] = {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "tekken.json",
        "tiktoken.model",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "chat_template.jinja",
        "chat_template.json",
        "modules.json",
        "1_Pooling/config.json",
        "config_sentence_transformers.json",
        "hf_quant_config.json",
        "quantize_config.json",
        "quant_config.json",
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(name, names[i]) == 0) return true;
    }
    const size_t folder_len = strlen(TEMPLATES_FOLDER);
    return strncmp(name, TEMPLATES_FOLDER, folder_len) == 0 && !strchr(name + folder_len, '/') &&
           file_name_ends(name, ".jinja");
}

// ---- GGUF ----

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

static bool equals(const char *a, const char *b, size_t len) {
    for (size_t i = 0; i < len; i++) {
        if (lower(a[i]) != lower(b[i])) return false;
    }
    return true;
}

static bool contains(const char *text, const char *part) {
    size_t len = strlen(part);
    for (; strlen(text) >= len; text++) {
        if (equals(text, part, len)) return true;
    }
    return false;
}

static const char *base_name(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

// A file of several parts ends in "-00001-of-00003.gguf". The place of that ending, and its
// numbers; NULL: the file has no parts.
static const char *split_end(const char *name, unsigned *part, unsigned *num_parts) {
    enum { END_LEN = sizeof "-00001-of-00003.gguf" - 1 };
    size_t len = strlen(name);
    if (len <= END_LEN) return NULL;
    const char *end = name + len - END_LEN;
    if (end[0] != '-' || memcmp(end + 6, "-of-", 4) != 0) return NULL;
    if (strspn(end + 1, "0123456789") != 5 || strspn(end + 10, "0123456789") != 5) return NULL;
    *part = (unsigned)strtoul(end + 1, NULL, 10);
    *num_parts = (unsigned)strtoul(end + 10, NULL, 10);
    return *part && *part <= *num_parts ? end : NULL;
}

// A model, or a part of one.
static bool is_gguf(const char *name) {
    const char *base = base_name(name);
    // Parts of models for images, and measurements for quantizing.
    return file_name_ends(base, ".gguf") && !contains(base, "mmproj") && !contains(base, "imatrix");
}

// A model, and of a model in parts the first: what is opened.
static bool is_gguf_model(const char *name) {
    unsigned part, num_parts;
    return is_gguf(name) && (!split_end(name, &part, &num_parts) || part == 1);
}

// Where the name without parts and ending stops.
static size_t stem_len(const char *base) {
    unsigned part, num_parts;
    const char *end = split_end(base, &part, &num_parts);
    return end ? (size_t)(end - base) : strlen(base) - strlen(".gguf");
}

// Whether `quant` is the last word of "Qwen3-8B-Q4_K_M.gguf", in any case, or the whole name.
static bool has_quant(const char *name, const char *quant) {
    const char *base = base_name(name);
    if (strcmp(name, quant) == 0 || strcmp(base, quant) == 0) return true;
    size_t len = strlen(quant), stem = stem_len(base);
    if (stem < len || !equals(base + stem - len, quant, len)) return false;
    return stem == len || strchr("-.", base[stem - len - 1]);
}

// The model's quantization as its name says it: what stands behind the last '-' or '.'.
static void put_quant(char *out, size_t size, const char *name) {
    const char *base = base_name(name);
    size_t end = stem_len(base), begin = end;
    while (begin && !strchr("-.", base[begin - 1])) begin--;
    if (begin >= 3 && memcmp(base + begin - 3, "UD-", 3) == 0) begin -= 3; // a kind of its own
    snprintf(out, size, "%.*s", (int)(end - begin), base + begin);
}

// Whether two files are one, or parts of one model.
static bool is_same_model(const char *a, const char *b) {
    unsigned part, num_parts_a = 1, num_parts_b = 1;
    const char *end_a = split_end(a, &part, &num_parts_a);
    const char *end_b = split_end(b, &part, &num_parts_b);
    if (!end_a || !end_b) return strcmp(a, b) == 0;
    return num_parts_a == num_parts_b && end_a - a == end_b - b &&
           memcmp(a, b, (size_t)(end_a - a)) == 0;
}

bool hub_files_read_quant(char quant[HUB_QUANT_MAX], const char *name) {
    if (!is_gguf(name)) return false;
    put_quant(quant, HUB_QUANT_MAX, name);
    return *quant != '\0';
}

size_t hub_files_want_there(struct hub_files *files, const char *quant) {
    const char *best = NULL;
    size_t num_wanted = 0;
    for (size_t i = 0; i < files->count; i++) {
        const char *name = files->items[i].name;
        if (!is_gguf(name) || !has_quant(name, quant)) continue;
        if (!best || strlen(base_name(name)) < strlen(base_name(best))) best = name;
    }
    for (size_t i = 0; i < files->count; i++) {
        struct hub_file *file = &files->items[i];
        file->is_wanted = best && is_same_model(file->name, best);
        num_wanted += file->is_wanted;
    }
    return num_wanted;
}

// The shortest name that matches: "Q4_K_XL" is not "UD-Q4_K_XL" where both are there.
static const char *find_gguf(const struct hub_files *files, const char *quant, size_t *num_models) {
    const char *best = NULL;
    *num_models = 0;
    for (size_t i = 0; i < files->count; i++) {
        const char *name = files->items[i].name;
        if (!is_gguf_model(name)) continue;
        ++*num_models;
        if (quant && !has_quant(name, quant)) continue;
        if (!best || strlen(base_name(name)) < strlen(base_name(best))) best = name;
    }
    return best;
}

// A part of a model, of this quantization if it is given, whose first part is not there.
static const char *find_later_part(const struct hub_files *files, const char *quant) {
    for (size_t i = 0; i < files->count; i++) {
        const char *name = files->items[i].name;
        if (!is_gguf(name) || is_gguf_model(name)) continue;
        if (!*quant || has_quant(name, quant)) return name;
    }
    return NULL;
}

static enum status refuse_quant(const struct hub_files *files, const char *quant, const char *what,
                                struct err *err) {
    const char *later = find_later_part(files, quant);
    char list[300] = "";
    size_t len = 0;
    for (size_t i = 0; i < files->count && len + 1 < sizeof list; i++) {
        char name[64];
        if (!is_gguf_model(files->items[i].name)) continue;
        put_quant(name, sizeof name, files->items[i].name);
        int n = snprintf(list + len, sizeof list - len, "%s%s", len ? ", " : "", name);
        len += n > 0 ? (size_t)n : 0;
    }
    if (later && (*quant || !*list)) {
        unsigned part, num_parts;
        const char *end = split_end(later, &part, &num_parts);
        return err_set(err, ERR_IO,
                       "%s has part %u of %u, but not the first: %.*s-00001-of-%05u.gguf", what,
                       part, num_parts, (int)(end - later), later, num_parts);
    }
    if (!*list) return err_set(err, ERR_IO, "%s has no GGUF file", what);
    if (!*quant) {
        return err_set(err, ERR_IO, "%s has several GGUF files: choose one of %s", what, list);
    }
    return err_set(err, ERR_IO, "%s has no GGUF file of %s: choose one of %s", what, quant, list);
}

static enum status want_parts(struct hub_files *files, const char *first, const char *what,
                              struct err *err) {
    unsigned part = 1, num_parts = 1;
    const char *end = split_end(first, &part, &num_parts);
    if (!end) {
        struct hub_file *file = hub_files_find(files, first);
        if (file) file->is_wanted = true;
        return OK;
    }
    for (part = 1; part <= num_parts; part++) {
        char name[1100];
        snprintf(name, sizeof name, "%.*s-%05u-of-%05u.gguf", (int)(end - first), first, part,
                 num_parts);
        struct hub_file *file = hub_files_find(files, name);
        if (!file) return err_set(err, ERR_IO, "%s has no %s", what, name);
        file->is_wanted = true;
    }
    return OK;
}

static enum status choose_gguf(struct hub_files *files, const char *quant,
                               struct hub_choice *choice, const char *what, struct err *err) {
    // Without a choice: the sizes that most people take.
    static const char *const usual[] = {"Q4_K_M", "Q8_0"};
    size_t num_models;
    const char *name = find_gguf(files, *quant ? quant : NULL, &num_models);
    if (!*quant && num_models > 1) {
        name = NULL;
        for (size_t i = 0; i < ARRAY_LEN(usual) && !name; i++) {
            name = find_gguf(files, usual[i], &num_models);
        }
    }
    if (!name) return refuse_quant(files, quant, what, err);
    choice->is_gguf = true;
    choice->gguf = name;
    return want_parts(files, name, what, err);
}

// ---- the choice ----

enum status hub_files_choose(struct hub_files *files, const char *quant, enum hub_want want,
                             struct hub_choice *choice, const char *what, struct err *err) {
    *choice = (struct hub_choice){0};
    size_t num_models;
    bool has_gguf = find_gguf(files, NULL, &num_models) || find_later_part(files, quant);
    struct hub_file *single = hub_files_find(files, SINGLE_NAME);
    struct hub_file *index = hub_files_find(files, HUB_INDEX_NAME);
    for (size_t i = 0; i < files->count; i++) files->items[i].is_wanted = false;
    if (*quant || (!single && !index && has_gguf)) {
        return choose_gguf(files, quant, choice, what, err);
    }
    for (size_t i = 0; i < files->count; i++) {
        files->items[i].is_wanted = hub_file_is_text(files->items[i].name);
    }
    if (want == HUB_WANT_TEXTS) return OK;
    // With both, model.safetensors is the one that is read.
    if (single) {
        single->is_wanted = true;
    } else if (index) {
        index->is_wanted = true;
        choice->has_shards = true;
    } else {
        char list[300];
        hub_files_describe(files, list, sizeof list);
        return err_set(err, ERR_IO, "%s has neither " SINGLE_NAME " nor a GGUF file; it has %s",
                       what, *list ? list : "nothing");
    }
    return OK;
}

enum status hub_files_want_shards(struct hub_files *files, const char *index, size_t len,
                                  const char *what, struct err *err) {
    json_t *root;
    enum status status = jread_text(&root, index, len, HUB_INDEX_NAME, err);
    if (status) return status;
    const json_t *map = jread_is_object(root) ? json_object_get(root, "weight_map") : NULL;
    if (!jread_is_object(map) || !json_object_size(map)) {
        status = err_set(err, ERR_FORMAT, "%s: " HUB_INDEX_NAME " has no weight_map", what);
    }
    void *iterator = status ? NULL : json_object_iter((json_t *)(uintptr_t)map);
    const char *last = NULL; // tensors of a shard mostly follow each other
    for (; iterator && !status;
         iterator = json_object_iter_next((json_t *)(uintptr_t)map, iterator)) {
        const char *shard = json_string_value(json_object_iter_value(iterator));
        if (shard && last && strcmp(shard, last) == 0) continue;
        struct hub_file *file = shard ? hub_files_find(files, shard) : NULL;
        if (file) {
            file->is_wanted = true;
            last = shard;
        } else {
            status = err_set(err, ERR_IO, "%s has no %.200s, which " HUB_INDEX_NAME " names", what,
                             shard ? shard : jread_type_name(json_object_iter_value(iterator)));
        }
    }
    json_decref(root);
    return status;
}
