/* Arbitrary text as the hub's list of files, and as an index of shards. Names that are accepted
 * stay in the model's folder, and a choice of them wants only what the list has. */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "hub/hub_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_names(const struct hub_files *files) {
    for (size_t i = 0; i < files->count; i++) {
        const char *name = files->items[i].name;
        CHECK(*name && *name != '/' && !strstr(name, "/../") && strncmp(name, "../", 3) != 0,
              "name=%s", name);
        CHECK(hub_files_find(files, name) == &files->items[i], "name=%s", name);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct hub_files files = {0};
    struct hub_choice choice;
    char commit[HUB_COMMIT_SIZE];
    const char *text = (const char *)data;
    if (!hub_list_read(&files, commit, text, size, NULL)) {
        check_names(&files);
        CHECK(hub_is_commit(commit), "commit=%s", commit);
        static const char *const quants[] = {"", "Q4_K_M", "model.gguf"};
        for (size_t i = 0; i < sizeof quants / sizeof quants[0]; i++) {
            if (hub_files_choose(&files, quants[i], HUB_WANT_MODEL, &choice, "it", NULL)) continue;
            CHECK(!choice.is_gguf || hub_files_find(&files, choice.gguf)->is_wanted, "%s", "gguf");
        }
    }
    enum status status = hub_files_want_shards(&files, text, size, "it", NULL);
    (void)status;
    hub_files_fini(&files);
    return 0;
}
