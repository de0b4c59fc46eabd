// What control groups and `ulimit -v` leave of the machine. The groups are files of the test's own.
#include "base/os/cgroup.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/cpu.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

// A service of systemd: the root, a slice in it, the service in that. `process` has membership and
// mounts.
struct groups {
    struct temp_folder process, root, slice, service;
    char membership[160], mounts[160];
};

static void add_group(struct temp_folder *group, const struct temp_folder *above,
                      const char *name) {
    int len = snprintf(group->path, sizeof group->path, "%.60s/%s", above->path, name);
    assert_in_range(len, 1, sizeof group->path - 1);
    assert_int_equal(mkdir(group->path, 0700), 0);
}

// What /proc/self/mountinfo says of the root: its topmost group, then all behind "rw,relatime".
static void groups_create_on(struct groups *groups, const char *membership, const char *top,
                             const char *mount) {
    temp_folder_create(&groups->process);
    temp_folder_create(&groups->root);
    add_group(&groups->slice, &groups->root, "a.slice");
    add_group(&groups->service, &groups->slice, "b.service");
    temp_folder_write_text(&groups->process, "cgroup", membership);
    snprintf(groups->membership, sizeof groups->membership, "%s/cgroup", groups->process.path);
    char lines[12000]; // the first one is longer than any that counts, and its end looks like one
    const char *root = groups->root.path;
    int len =
        snprintf(lines, sizeof lines,
                 "20 1 8:1 / / rw - overlay overlay rw,lowerdir=%08000d a b / %s c - cgroup2\n"
                 "21 1 0:5 / /proc rw,nosuid shared:12 - proc proc rw\n"
                 "31 23 0:28 %s %s rw,relatime %s\n",
                 0, root, top, root, mount);
    assert_in_range(len, 1, sizeof lines - 1);
    temp_folder_write_text(&groups->process, "mountinfo", lines);
    snprintf(groups->mounts, sizeof groups->mounts, "%s/mountinfo", groups->process.path);
}

static void groups_create(struct groups *groups, const char *membership) {
    groups_create_on(groups, membership, "/", "- cgroup2 cgroup2 rw,nsdelegate");
}

static void groups_remove(struct groups *groups) {
    temp_folder_remove(&groups->service);
    temp_folder_remove(&groups->slice);
    temp_folder_remove(&groups->root);
    temp_folder_remove(&groups->process);
}

static void limit_memory(const struct temp_folder *group, const char *max, const char *current) {
    temp_folder_write_text(group, "memory.max", max);
    temp_folder_write_text(group, "memory.current", current);
}

static struct cgroup_limits read_limits(const struct groups *groups) {
    return cgroup_read(groups->membership, groups->mounts);
}

static void test_a_service_has_its_own_limits(void **state) {
    (void)state;
    struct groups groups;
    groups_create(&groups, "4:memory:/other\n0::/a.slice/b.service\n");
    limit_memory(&groups.service, "1000\n", "700\n");
    temp_folder_write_text(&groups.service, "memory.stat",
                           "anon 500\ninactive_file 120\nactive_file 80\n");
    temp_folder_write_text(&groups.service, "cpu.max", "150000 100000\n");
    struct cgroup_limits limits = read_limits(&groups);
    assert_int_equal(limits.memory_bytes, 500); // its file cache is reclaimable
    assert_int_equal(limits.cores, 2);
    groups_remove(&groups);
}

static void test_the_tightest_group_counts(void **state) {
    (void)state;
    struct groups groups;
    groups_create(&groups, "0::/a.slice/b.service\n");
    limit_memory(&groups.service, "max\n", "700\n");
    limit_memory(&groups.slice, "900\n", "800\n");
    limit_memory(&groups.root, "5000\n", "800\n");
    temp_folder_write_text(&groups.service, "cpu.max", "400000 100000\n");
    temp_folder_write_text(&groups.slice, "cpu.max", "max 100000\n");
    temp_folder_write_text(&groups.root, "cpu.max", "300000 100000\n");
    struct cgroup_limits limits = read_limits(&groups);
    assert_int_equal(limits.memory_bytes, 100);
    assert_int_equal(limits.cores, 3);
    groups_remove(&groups);
}

// In a container the group is the root, or lies outside of what the process sees.
static void test_the_root_counts_where_the_group_is_not_seen(void **state) {
    (void)state;
    const char *const memberships[] = {"0::/\n", "0::/../../c.scope\n", "4:memory:/other\n", ""};
    for (size_t i = 0; i < sizeof memberships / sizeof *memberships; i++) {
        struct groups groups;
        groups_create(&groups, memberships[i]);
        limit_memory(&groups.root, "900\n", "1000\n");
        struct cgroup_limits limits = read_limits(&groups);
        assert_int_equal(limits.memory_bytes, 0); // above its limit
        assert_true(limits.cores == UINT64_MAX);
        groups_remove(&groups);
    }
}

static void limit_memory_1(const struct temp_folder *group, const char *limit, const char *used) {
    temp_folder_write_text(group, "memory.limit_in_bytes", limit);
    temp_folder_write_text(group, "memory.usage_in_bytes", used);
}

static void limit_cores_1(const struct temp_folder *group, const char *quota) {
    temp_folder_write_text(group, "cpu.cfs_quota_us", quota);
    temp_folder_write_text(group, "cpu.cfs_period_us", "100000\n");
}

// Of version 1: two controllers on one mount, others beside it, and version 2 without limits.
static void test_version_1_has_a_quota_and_a_period(void **state) {
    (void)state;
    struct groups groups;
    groups_create_on(&groups,
                     "9:memory:/a.slice\n4:cpuset:/other\n3:cpu,cpuacct:/a.slice/b.service\n"
                     "1:name=systemd:/other\n0::/other\n",
                     "/", "shared:9 master:1 - cgroup cgroup rw,cpu,cpuacct");
    limit_cores_1(&groups.service, "250000\n");
    limit_cores_1(&groups.slice, "-1\n"); // none
    limit_cores_1(&groups.root, "800000\n");
    // Nobody's: this mount has no such controller, and is not of version 2.
    limit_memory_1(&groups.service, "1000\n", "0\n");
    temp_folder_write_text(&groups.root, "cpu.max", "100000 100000\n");
    struct cgroup_limits limits = read_limits(&groups);
    assert_int_equal(limits.cores, 3);
    assert_true(limits.memory_bytes == UINT64_MAX);
    limit_cores_1(&groups.root, "150000\n");
    assert_int_equal(read_limits(&groups).cores, 2);
    groups_remove(&groups);
}

static void test_version_1_counts_the_cache_of_groups_below(void **state) {
    (void)state;
    struct groups groups;
    groups_create_on(&groups, "7:cpu:/\n2:memory:/a.slice/b.service\n", "/",
                     "shared:9 - cgroup cgroup rw,memory");
    limit_memory_1(&groups.service, "1000\n", "700\n");
    temp_folder_write_text(&groups.service, "memory.stat",
                           "inactive_file 1\ntotal_inactive_file 120\ntotal_active_file 80\n");
    limit_memory_1(&groups.slice, "9223372036854771712\n", "700\n"); // none
    limit_cores_1(&groups.service, "100000\n"); // nobody's
    struct cgroup_limits limits = read_limits(&groups);
    assert_int_equal(limits.memory_bytes, 500);
    assert_true(limits.cores == UINT64_MAX);
    limit_memory_1(&groups.service, "9223372036854771712\n", "700\n");
    assert_true(read_limits(&groups).memory_bytes == UINT64_MAX);
    groups_remove(&groups);
}

// A container without a name space of its own sees its full name, and its group is mounted at the
// top.
static void test_a_container_of_version_1_is_the_topmost_group(void **state) {
    (void)state;
    struct groups groups;
    groups_create_on(&groups, "2:cpuacct,cpu:/docker/1234/a.slice\n", "/docker/1234",
                     "- cgroup cgroup rw,cpuacct,cpu");
    limit_cores_1(&groups.root, "400000\n");
    limit_cores_1(&groups.slice, "200000\n");
    assert_int_equal(read_limits(&groups).cores, 2);
    temp_folder_write_text(&groups.process, "cgroup", "2:cpuacct,cpu:/docker/1234\n");
    assert_int_equal(read_limits(&groups).cores, 4);
    const char *const others[] = {"2:cpuacct,cpu:/docker/12345/a.slice\n",
                                  "2:cpuacct,cpu:/docker/1235/a.slice\n"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        temp_folder_write_text(&groups.process, "cgroup", others[i]);
        assert_int_equal(read_limits(&groups).cores, 4);
    }
    groups_remove(&groups);
}

static void test_what_is_absent_sets_no_limit(void **state) {
    (void)state;
    struct cgroup_limits limits = cgroup_read("/nonexistent/cgroup", "/nonexistent/mountinfo");
    assert_true(limits.memory_bytes == UINT64_MAX);
    assert_true(limits.cores == UINT64_MAX);
}

static size_t address_space_bytes(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void test_available_memory_is_within_the_address_space(void **state) {
    (void)state;
    const size_t left = (size_t)64 << 20; // enough for a sanitizer, less than any machine has free
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    struct rlimit small = {.rlim_cur = address_space_bytes() + left, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &small), 0);
    size_t available = cpu_memory_available_bytes();
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_in_range(available, 1, left);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_service_has_its_own_limits),
        cmocka_unit_test(test_the_tightest_group_counts),
        cmocka_unit_test(test_the_root_counts_where_the_group_is_not_seen),
        cmocka_unit_test(test_version_1_has_a_quota_and_a_period),
        cmocka_unit_test(test_version_1_counts_the_cache_of_groups_below),
        cmocka_unit_test(test_a_container_of_version_1_is_the_topmost_group),
        cmocka_unit_test(test_what_is_absent_sets_no_limit),
        cmocka_unit_test(test_available_memory_is_within_the_address_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
