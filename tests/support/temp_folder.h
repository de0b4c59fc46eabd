/* A temporary folder for a test that needs files. It is removed with the files written into it. */
#ifndef SUPPORT_TEMP_FOLDER_H
#define SUPPORT_TEMP_FOLDER_H

#include <stddef.h>

struct temp_folder {
    char path[128];
};

// Each fails the test if the system refuses.
void temp_folder_create(struct temp_folder *folder);
void temp_folder_write(const struct temp_folder *folder, const char *name, const void *bytes,
                       size_t size);
void temp_folder_write_text(const struct temp_folder *folder, const char *name, const char *text);
void temp_folder_remove(struct temp_folder *folder); // with its files; it must hold no folders

#endif
