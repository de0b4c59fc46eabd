#include "comm/mpi_wire.h"

#include <dlfcn.h>
#include <string.h>
#include <time.h>

#include "base/os/clock.h"
#include "base/os/cpu.h"

// Found by the run path of the program or library that this is part of: beside it, or where it was
// installed.
#define PLUGIN "nanovllm-mpi.so"

static const double spin_seconds = 200e-6;
// Steps follow each other within milliseconds: a sleep is to be shorter. Idle ranks may take
// longer.
static const double busy_seconds = 0.5;
// A longer time between two looks is one in which this process was stopped.
static const double look_seconds_max = 0.1;
enum { SLEEP_NS = 20000, IDLE_SLEEP_NS = 1000000 };

// `reason` is dlopen's, which begins with the name of the file that is missing.
static enum status refuse_plugin(const char *reason, struct err *err) {
    if (strncmp(reason, PLUGIN, strlen(PLUGIN)) == 0) {
        return err_set(err, ERR_UNSUPPORTED,
                       "mpirun has started this program, which needs the plug-in " PLUGIN
                       " beside it: a build makes it where Open MPI's development files are "
                       "installed (Debian: apt-get install libopenmpi-dev)");
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "mpirun has started this program, but the plug-in for MPI cannot be loaded: "
                   "install Open MPI (Debian: apt-get install openmpi-bin); %s",
                   reason);
}

enum status mpi_wire_open(const struct mpi_wire **out, struct mpi_world *world, struct err *err) {
    *out = NULL;
    // The MPI library finds its own parts by names that the plug-in's library must offer to all.
    void *plugin = dlopen(PLUGIN, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!plugin) return refuse_plugin(dlerror(), err);
    mpi_wire_fn get = NULL;
    void *address = dlsym(plugin, MPI_WIRE_FUNCTION);
    memcpy(&get, &address, sizeof get); // object to function pointer, which POSIX allows
    const struct mpi_wire *wire = get ? get() : NULL;
    if (!wire || wire->version != MPI_WIRE_VERSION) {
        return err_set(err, ERR_UNSUPPORTED, PLUGIN " is of another version of nanovllm");
    }
    const char *fault = wire->start(world);
    if (fault) return err_set(err, ERR_UNSUPPORTED, "%s", fault);
    *out = wire;
    return OK;
}

double mpi_spin_seconds(const struct mpi_world *world) {
    // Where ranks share a core, a rank that spins keeps the awaited rank from running.
    return world->num_sharing <= (uint32_t)cpu_count() ? spin_seconds : 0;
}

double mpi_pause_wait(struct mpi_pause *pause) {
    double now = clock_seconds();
    double passed = pause->last > 0 ? now - pause->last : 0;
    pause->waited += passed < look_seconds_max ? passed : look_seconds_max;
    pause->last = now;
    if (pause->waited < pause->spin_seconds) {
        cpu_relax();
        return pause->waited;
    }
    const struct timespec time = {0, pause->waited < busy_seconds ? SLEEP_NS : IDLE_SLEEP_NS};
    nanosleep(&time, NULL);
    return pause->waited;
}
