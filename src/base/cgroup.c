#include "base/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

// A file of a group. NULL: the group has none, or the name is too long.
static FILE *open_file(const char *group, const char *name) {
    char path[FILE_PATH_MAX];
    int len = snprintf(path, sizeof path, "%s/%s", group, name);
    return len > 0 && len < (int)sizeof path ? fopen(path, "re") : NULL;
}

// Reads one number from a file; false when the file or the number is not there.
static bool read_number(const char *group, const char *name, uint64_t *value) {
    FILE *file = open_file(group, name);
    if (!file) return false;
    char text[64];
    bool ok = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    if (!ok) return false;
    char *end = NULL;
    unsigned long long number = strtoull(text, &end, 10);
    if (end == text) return false; // "max": no limit
    *value = number;
    return true;
}

// A group counts page cache as used, but the kernel reclaims it when memory is short.
static uint64_t file_cache_bytes(const char *group) {
    FILE *file = open_file(group, "memory.stat");
    if (!file) return 0;
    char line[128];
    uint64_t bytes = 0;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "inactive_file ", 14) == 0 || strncmp(line, "active_file ", 12) == 0) {
            bytes += strtoull(strchr(line, ' ') + 1, NULL, 10);
        }
    }
    fclose(file);
    return bytes;
}

static uint64_t memory_left(const char *group) {
    uint64_t limit, used;
    if (!read_number(group, "memory.max", &limit)) return UINT64_MAX;
    if (!read_number(group, "memory.current", &used)) return UINT64_MAX;
    uint64_t cache = file_cache_bytes(group);
    used = used > cache ? used - cache : 0;
    return limit > used ? limit - used : 0;
}

// The file holds "<microseconds>|max <period>".
static uint64_t core_quota(const char *group) {
    FILE *file = open_file(group, "cpu.max");
    if (!file) return UINT64_MAX;
    char text[64];
    bool ok = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    char *end = text;
    long quota = ok ? strtol(text, &end, 10) : 0;
    long period = strtol(end, NULL, 10);
    return quota > 0 && period > 0 ? (uint64_t)((quota + period - 1) / period) : UINT64_MAX;
}

// Writes the process's group below `root` to `path`. The line of version 2 is
// "0::/system.slice/...". Without one, or with a group outside of what this process sees
// ("/../.."), it is `root` itself.
static void find_group(char path[FILE_PATH_MAX], const char *membership, const char *root) {
    snprintf(path, FILE_PATH_MAX, "%s", root);
    FILE *file = fopen(membership, "re");
    if (!file) return;
    char line[FILE_PATH_MAX];
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "0::/", 4) != 0 || strstr(line, "/..")) continue;
        line[strcspn(line, "\n")] = '\0';
        int len = snprintf(path, FILE_PATH_MAX, "%s%s", root, line + 3);
        if (len >= FILE_PATH_MAX) snprintf(path, FILE_PATH_MAX, "%s", root);
        break;
    }
    fclose(file);
}

struct cgroup_room cgroup_read(const char *membership, const char *root) {
    struct cgroup_room room = {.memory_bytes = UINT64_MAX, .cores = UINT64_MAX};
    char group[FILE_PATH_MAX];
    find_group(group, membership, root);
    size_t root_len = strlen(root);
    for (;;) {
        uint64_t memory = memory_left(group), cores = core_quota(group);
        if (memory < room.memory_bytes) room.memory_bytes = memory;
        if (cores < room.cores) room.cores = cores;
        if (strlen(group) <= root_len) return room;
        *strrchr(group, '/') = '\0'; // the group above
    }
}
