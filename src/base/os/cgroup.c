#include "base/os/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/os/file.h"

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

// What the two versions call the same things.
struct memory_files {
    const char *limit, *used;
    const char *inactive_cache, *active_cache; // lines of memory.stat, with the groups below
};

static const struct memory_files memory_files[] = {
    // [version - 1]
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ",
     "total_active_file "},
    {"memory.max", "memory.current", "inactive_file ", "active_file "},
};

// A group counts page cache as used, but the kernel reclaims it when memory is short.
static uint64_t file_cache_bytes(const char *group, const struct memory_files *names) {
    FILE *file = open_file(group, "memory.stat");
    if (!file) return 0;
    char line[128];
    uint64_t bytes = 0;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, names->inactive_cache, strlen(names->inactive_cache)) == 0 ||
            strncmp(line, names->active_cache, strlen(names->active_cache)) == 0) {
            bytes += strtoull(strchr(line, ' ') + 1, NULL, 10);
        }
    }
    fclose(file);
    return bytes;
}

static uint64_t memory_left(const char *group, const struct memory_files *names) {
    uint64_t limit, used;
    if (!read_number(group, names->limit, &limit)) return UINT64_MAX;
    if (!read_number(group, names->used, &used)) return UINT64_MAX;
    if (limit > INT64_MAX / 2) return UINT64_MAX; // version 1's "no limit" is about INT64_MAX
    uint64_t cache = file_cache_bytes(group, names);
    used = used > cache ? used - cache : 0;
    return limit > used ? limit - used : 0;
}

static uint64_t cores_of(long quota, long period) {
    return quota > 0 && period > 0 ? (uint64_t)((quota + period - 1) / period) : UINT64_MAX;
}

// Version 1 has two files. The quota is -1 where there is none.
static uint64_t core_quota_1(const char *group) {
    uint64_t quota, period;
    if (!read_number(group, "cpu.cfs_quota_us", &quota)) return UINT64_MAX;
    if (!read_number(group, "cpu.cfs_period_us", &period)) return UINT64_MAX;
    return cores_of((long)quota, (long)period);
}

// The file holds "<microseconds>|max <period>".
static uint64_t core_quota_2(const char *group) {
    FILE *file = open_file(group, "cpu.max");
    if (!file) return UINT64_MAX;
    char text[64];
    bool ok = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    if (!ok) return UINT64_MAX;
    char *end = text;
    long quota = strtol(text, &end, 10);
    return cores_of(quota, strtol(end, NULL, 10));
}

// Reads the next line that fits whole, without its newline. Longer ones are skipped: mounts of many
// layers have them, and control groups have not.
static bool read_line(FILE *file, char line[FILE_PATH_MAX]) {
    bool is_rest = false;
    while (fgets(line, FILE_PATH_MAX, file)) {
        size_t len = strcspn(line, "\n");
        bool is_end = line[len] == '\n';
        line[len] = '\0';
        if (is_end && !is_rest) return true;
        is_rest = !is_end;
    }
    return false;
}

// Whether `word` is one of a list's words, which commas separate.
static bool has_word(const char *list, const char *word) {
    size_t len = strlen(word);
    for (;; list++) {
        size_t next = strcspn(list, ",");
        if (next == len && strncmp(list, word, len) == 0) return true;
        list += next;
        if (!*list) return false;
    }
}

// Cuts the next of a line's fields off. An absent one is empty.
static char *next_field(char **rest, const char *separator) {
    char *field = strsep(rest, separator);
    return field ? field : "";
}

// Where groups are mounted, and which of them is the topmost there: the root, or in a container the
// container's own.
struct mount {
    bool is_2; // version 2, which has all controllers in one hierarchy
    const char *path, *top;
    const char *options; // with the controllers of a mount of version 1
};

// The line is "31 23 0:28 TOP PATH rw,relatime shared:9 - cgroup NAME rw,cpu,cpuacct". Any number
// of fields precedes the dash. False: it is no mount of control groups.
static bool parse_mount(char *line, struct mount *mount) {
    for (int i = 0; i < 3; i++) next_field(&line, " ");
    mount->top = next_field(&line, " ");
    mount->path = next_field(&line, " ");
    while (line && strcmp(next_field(&line, " "), "-") != 0) continue;
    const char *type = next_field(&line, " ");
    next_field(&line, " ");
    mount->options = next_field(&line, " ");
    mount->is_2 = strcmp(type, "cgroup2") == 0;
    return mount->is_2 || strcmp(type, "cgroup") == 0;
}

// Writes the process's group to `group`, a path below mount->path. `controller`: of a mount of
// version 1, whose line is "4:cpu,cpuacct:/user.slice". That of version 2 is "0::/user.slice".
// Without one, or with a group outside of what this process sees ("/../.."), it is the topmost
// group itself.
static void find_group(char group[FILE_PATH_MAX], const char *membership, const struct mount *mount,
                       const char *controller) {
    snprintf(group, FILE_PATH_MAX, "%s", mount->path);
    FILE *file = fopen(membership, "re");
    if (!file) return;
    char line[FILE_PATH_MAX];
    while (read_line(file, line)) {
        char *path = line;
        next_field(&path, ":");
        const char *controllers = next_field(&path, ":");
        bool is_it = mount->is_2 ? !*controllers : has_word(controllers, controller);
        if (!is_it || !path) continue;
        size_t top_len = strcmp(mount->top, "/") == 0 ? 0 : strlen(mount->top);
        const char *below = path + top_len;
        bool is_seen = strncmp(path, mount->top, top_len) == 0 && *below == '/' && below[1] &&
                       !strstr(below, "/..");
        int len = is_seen ? snprintf(group, FILE_PATH_MAX, "%s%s", mount->path, below) : 0;
        if (len >= FILE_PATH_MAX) snprintf(group, FILE_PATH_MAX, "%s", mount->path);
        break;
    }
    fclose(file);
}

static void lower(uint64_t *limit, uint64_t value) {
    if (value < *limit) *limit = value;
}

// Lowers the limits to what the process's group and all groups above it leave.
static void read_groups(struct cgroup_limits *limits, const char *membership,
                        const struct mount *mount, const char *controller) {
    bool has_memory = mount->is_2 || strcmp(controller, "memory") == 0;
    bool has_cores = mount->is_2 || !has_memory;
    char group[FILE_PATH_MAX];
    find_group(group, membership, mount, controller);
    size_t top_len = strlen(mount->path);
    for (;;) {
        if (has_memory)
            lower(&limits->memory_bytes, memory_left(group, &memory_files[mount->is_2]));
        if (has_cores)
            lower(&limits->cores, mount->is_2 ? core_quota_2(group) : core_quota_1(group));
        if (strlen(group) <= top_len) return;
        *strrchr(group, '/') = '\0'; // the group above
    }
}

struct cgroup_limits cgroup_read(const char *membership, const char *mounts) {
    struct cgroup_limits limits = {.memory_bytes = UINT64_MAX, .cores = UINT64_MAX};
    FILE *file = fopen(mounts, "re");
    if (!file) return limits;
    char line[FILE_PATH_MAX];
    while (read_line(file, line)) {
        struct mount mount;
        if (!parse_mount(line, &mount)) continue;
        static const char *const controllers[] = {"cpu", "memory"};
        for (size_t i = 0; i < ARRAY_LEN(controllers); i++) {
            if (!mount.is_2 && !has_word(mount.options, controllers[i])) continue;
            read_groups(&limits, membership, &mount, controllers[i]);
            if (mount.is_2) break; // it has both
        }
    }
    fclose(file);
    return limits;
}
