#include "support/children.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>

#include "support/cmocka_all.h"

size_t children(pid_t *out, size_t max) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task");
    DIR *tasks = opendir(path);
    assert_non_null(tasks);
    size_t count = 0;
    struct dirent *entry;
    while ((entry = readdir(tasks))) {
        char list[300];
        snprintf(list, sizeof list, "/proc/self/task/%s/children", entry->d_name);
        FILE *file = fopen(list, "r");
        if (!file) continue;
        int pid;
        while (count < max && fscanf(file, "%d", &pid) == 1) out[count++] = (pid_t)pid;
        fclose(file);
    }
    closedir(tasks);
    return count;
}

void assert_no_children(void) {
    pid_t pid;
    assert_int_equal(children(&pid, 1), 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}
