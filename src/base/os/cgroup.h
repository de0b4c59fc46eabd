/* What the control groups that this process is in leave it of the machine. A limit holds for all
 * groups below it, so the group and all groups above it count: a container sees its own group as
 * the topmost one, a service of systemd is three or four levels deep.
 *
 * Version 2 has one hierarchy. Version 1 has one for each controller, or for some of them
 * together. A system may have both: then version 1's have the limits. */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

#include <stdint.h>

#define CGROUP_OF_PROCESS "/proc/self/cgroup"
#define CGROUP_MOUNTS "/proc/self/mountinfo"

struct cgroup_limits {
    uint64_t memory_bytes; // free or reclaimable; UINT64_MAX: no limit
    uint64_t cores; // the quota, rounded up; UINT64_MAX: no limit
};

// `membership`: CGROUP_OF_PROCESS, and `mounts`: CGROUP_MOUNTS, or a test's files of the same form.
// What cannot be read sets no limit.
struct cgroup_limits cgroup_read(const char *membership, const char *mounts);

#endif
