/* Shows that a model is downloaded: a bar on a terminal, elsewhere a line at the beginning and one
 * at the end. Meanwhile the first Ctrl-C ends the download with a sentence. */
#ifndef CMD_DOWNLOADING_H
#define CMD_DOWNLOADING_H

#include "cmd/terminal/progress.h"
#include "nanovllm.h"

struct downloading {
    const char *model; // borrowed
    struct progress progress;
    char label[160];
    struct nvllm_download_progress callback; // for nvllm_engine_options
    struct nvllm_download last;
    double started_at;
    bool is_told; // that a download began
};

// *downloading must stay where it is until the end. Nothing is printed where nothing is downloaded.
void downloading_begin(struct downloading *downloading, const char *model);
void downloading_end(struct downloading *downloading, bool succeeded);
void downloading_tell(const struct nvllm_download *download, void *downloading);

#endif
