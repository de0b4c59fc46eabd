#include "cmd/model/downloading.h"

#include <stdio.h>

#include "base/os/clock.h"
#include "cmd/cli.h"
#include "cmd/terminal/interrupt.h"

// "1.50 GB", as disks and networks count.
static void format_bytes(char *out, size_t size, uint64_t bytes) {
    bool is_large = bytes >= 1000000000;
    snprintf(out, size, "%.*f %s", is_large ? 2 : 1, (double)bytes / (is_large ? 1e9 : 1e6),
             is_large ? "GB" : "MB");
}

void downloading_tell(const struct nvllm_download *download, void *user_data) {
    struct downloading *downloading = user_data;
    downloading->last = *download;
    if (!downloading->is_told) {
        char bytes[32];
        downloading->is_told = true;
        downloading->started_at = clock_seconds();
        format_bytes(bytes, sizeof bytes, download->total_bytes - download->num_bytes);
        if (!downloading->progress.enabled) {
            unsigned num_files = download->total_files - download->num_files;
            cli_say("downloading %s: %u file%s, %s", downloading->model, num_files,
                    num_files == 1 ? "" : "s", bytes);
        }
    }
    progress_bytes(&downloading->progress, download->num_bytes, download->total_bytes);
}

void downloading_begin(struct downloading *downloading, const char *model) {
    *downloading = (struct downloading){
        .model = model, .callback = {.on_downloaded = downloading_tell, .user_data = downloading}};
    snprintf(downloading->label, sizeof downloading->label, "Downloading %s",
             loading_model_name(model));
    progress_init(&downloading->progress, downloading->label, true, 0);
    interrupt_install_download();
}

void downloading_end(struct downloading *downloading, bool succeeded) {
    interrupt_remove();
    progress_clear(&downloading->progress);
    if (!succeeded || !downloading->is_told) return;
    char bytes[32];
    format_bytes(bytes, sizeof bytes, downloading->last.total_bytes);
    cli_say("downloaded %s, %s in %.0f seconds", downloading->model, bytes,
            clock_seconds() - downloading->started_at);
}
