// Cores and NUMA nodes as made-up /sys folders tell them.
#include "base/os/cpu_topology.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "support/cmocka_all.h"

static char root[] = "/tmp/test_cpu_topology.XXXXXX";

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *ftw) {
    (void)info, (void)kind, (void)ftw;
    return remove(path);
}

// Writes a file and makes its folders.
static void write_file(const char *name, const char *text) {
    char path[512];
    int length = snprintf(path, sizeof path, "%s/%s", root, name);
    for (int i = (int)sizeof root; i < length; i++) {
        if (path[i] != '/') continue;
        path[i] = 0;
        mkdir(path, 0700);
        path[i] = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", text);
    fclose(file);
}

static cpu_set_t cpus(int first, int last) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = first; cpu <= last; cpu++) CPU_SET((size_t)cpu, &set);
    return set;
}

// CPUs 0 and 4, 1 and 5 share a core, 2 and 3 have one each; of 6 nothing is known.
static void test_cores(void **state) {
    (void)state;
    const char *siblings[] = {"0,4", "1,5", "2", "3", "0,4", "1,5"};
    for (int cpu = 0; cpu < 6; cpu++) {
        char name[64];
        snprintf(name, sizeof name, "cpu/cpu%d/topology/thread_siblings_list", cpu);
        write_file(name, siblings[cpu]);
    }
    cpu_set_t all = cpus(0, 5), second = cpus(4, 5), mixed = cpus(1, 5), unknown = cpus(5, 6);
    assert_int_equal(cpu_topology_cores(root, &all), 4);
    assert_int_equal(cpu_topology_cores(root, &second), 2); // their siblings are not allowed
    assert_int_equal(cpu_topology_cores(root, &mixed), 4);
    assert_int_equal(cpu_topology_cores(root, &unknown), 2);
    assert_int_equal(cpu_topology_cores("/nowhere", &all), 6);
}

static void test_nodes(void **state) {
    (void)state;
    cpu_set_t all = cpus(0, 15), second = cpus(4, 5), none = cpus(40, 41);
    assert_int_equal(cpu_topology_nodes(root, &all), 0);
    write_file("node/has_memory", "0-1,3-4");
    write_file("node/node0/cpulist", "0-3,8-11");
    write_file("node/node1/cpulist", "4-7,12-15");
    write_file("node/node2/cpulist", "0-15"); // has no memory
    write_file("node/node3/cpulist", ""); // memory without CPUs
    write_file("node/node4/cpulist", "nonsense");
    assert_int_equal(cpu_topology_nodes(root, &all), 3);
    assert_int_equal(cpu_topology_nodes(root, &second), 2);
    assert_int_equal(cpu_topology_nodes(root, &none), 0);
}

static int make_root(void **state) {
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    return nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cores),
        cmocka_unit_test(test_nodes),
    };
    return cmocka_run_group_tests_name("cpu_topology", tests, make_root, remove_root);
}
