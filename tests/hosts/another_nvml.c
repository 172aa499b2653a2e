/* Licensed under the Apache License, Version 2.0 (the "License"); you may
 * not use this file except in compliance with the License. You may obtain
 * a copy of the License at
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
 * WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
 * License for the specific language governing permissions and limitations
 * under the License.
 */

/*
 * A second library with NVML's symbols, which has in common with that of cyborg_ext_drivers.testing
 * only what nvml.h says.  It is made of one kind of card, PROFILE_* (strings and numbers), and has
 * the habits of libraries that stand for NVML elsewhere:
 *
 *   UNVERSIONED   the functions have no version in their names, and there is no nvmlInitWithFlags
 *   NO_PCI        none tells where a GPU is; it is found by its address
 *   PROCESS       a process uses each GPU, and asking how many do succeeds
 *   STRANGE       modes that nvml.h does not have, and texts that are none
 *   VERBOSE       so many bytes are printed, to either stream
 *
 * Whatever a card does not have succeeds with zeros; what it is not known to have is not there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef UNVERSIONED
#define NAMED(name, version) name
#else
#define NAMED(name, version) name##version
#endif

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} Pci;

typedef struct {
    unsigned long long total, free, used;
} Memory;

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} Process;

typedef const unsigned *Gpu; /* its bus */

static const unsigned buses[] = {PROFILE_BUSES};
enum { COUNT = sizeof buses / sizeof *buses };

static void say(void)
{
#ifdef VERBOSE
    for (int i = 0; i < VERBOSE / 64; i++)
        fprintf(i % 2 ? stderr : stdout, "[NVML] %056d\n", i);
    fflush(stdout);
#endif
}

#ifdef UNVERSIONED
int nvmlInit(void)
{
    say();
    return 0;
}
#else
int nvmlInitWithFlags(unsigned flags)
{
    say();
    return flags ? 2 : 0;
}
#endif

int nvmlShutdown(void) { return 0; }

static int text(const char *own, char *buffer, unsigned size)
{
    if (strlen(own) + 1 > size)
        return 7;
    strcpy(buffer, own);
    return 0;
}

int nvmlSystemGetDriverVersion(char *buffer, unsigned size)
{
    return text(PROFILE_DRIVER, buffer, size);
}

int nvmlSystemGetNVMLVersion(char *buffer, unsigned size)
{
    return text("12." PROFILE_DRIVER, buffer, size);
}

int NAMED(nvmlDeviceGetCount, _v2)(unsigned *count)
{
    *count = COUNT;
    return 0;
}

int NAMED(nvmlDeviceGetHandleByIndex, _v2)(unsigned index, Gpu *gpu)
{
    if (index >= COUNT)
        return 2;
    *gpu = &buses[index];
    return 0;
}

int NAMED(nvmlDeviceGetHandleByPciBusId, _v2)(const char *bus_id, Gpu *gpu)
{
    unsigned domain, bus, device;
    if (sscanf(bus_id, "%x:%x:%x.0", &domain, &bus, &device) != 3)
        return 2;
    for (int i = 0; i < COUNT; i++)
        if (!domain && !device && bus == buses[i]) {
            *gpu = &buses[i];
            return 0;
        }
    return 6;
}

#ifndef NO_PCI
int NAMED(nvmlDeviceGetPciInfo, _v3)(Gpu gpu, Pci *pci)
{
    char bus_id[32];
    /* Some fill the older field with the longer spelling, up to its last byte. */
    snprintf(bus_id, sizeof bus_id, PROFILE_BUS_ID, *gpu);
    memcpy(pci->bus_id_legacy, bus_id, sizeof pci->bus_id_legacy);
#ifndef UNVERSIONED
    strcpy(pci->bus_id, bus_id);
#endif
    pci->domain = pci->device = 0;
    pci->bus = *gpu;
    return 0;
}
#endif

int nvmlDeviceGetName(Gpu gpu, char *buffer, unsigned size)
{
    return text(PROFILE_NAME, buffer, size);
}

int nvmlDeviceGetUUID(Gpu gpu, char *buffer, unsigned size)
{
    return snprintf(buffer, size, PROFILE_UUID, (int)(gpu - buses)) < (int)size ? 0 : 7;
}

/* All of a board have the same one, and some have none. */
int nvmlDeviceGetSerial(Gpu gpu, char *buffer, unsigned size)
{
    return text("1562849103700", buffer, size);
}

int nvmlDeviceGetBoardPartNumber(Gpu gpu, char *buffer, unsigned size)
{
#ifdef STRANGE
    return text("\xff\x01", buffer, size);
#else
    return text("", buffer, size);
#endif
}

int nvmlDeviceGetMemoryInfo(Gpu gpu, Memory *memory)
{
    *memory = (Memory){PROFILE_MEMORY, PROFILE_MEMORY, 0};
    return 0;
}

int nvmlDeviceGetArchitecture(Gpu gpu, unsigned *architecture)
{
    *architecture = PROFILE_ARCHITECTURE;
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(Gpu gpu, int *major, int *minor)
{
    *major = PROFILE_MAJOR;
    *minor = PROFILE_MINOR;
    return 0;
}

int nvmlDeviceGetVirtualizationMode(Gpu gpu, unsigned *mode)
{
    *mode = 0;
    return 0;
}

int nvmlDeviceGetMigMode(Gpu gpu, unsigned *now, unsigned *later)
{
#ifdef STRANGE
    *now = *later = 0xffffffff;
#else
    *now = *later = 0;
#endif
    return 0;
}

int nvmlDeviceGetEccMode(Gpu gpu, unsigned *now, unsigned *later)
{
    *now = *later = 1;
    return 0;
}

int nvmlDeviceGetTotalEccErrors(Gpu gpu, int type, int counter, unsigned long long *count)
{
    *count = 0;
    return 0;
}

int nvmlDeviceGetRemappedRows(Gpu gpu, unsigned *correctable, unsigned *uncorrectable,
                              unsigned *pending, unsigned *failure)
{
    *correctable = *uncorrectable = *pending = *failure = 0;
    return 0;
}

int nvmlDeviceGetRetiredPagesPendingStatus(Gpu gpu, unsigned *pending)
{
    *pending = 0;
    return 0;
}

int nvmlDeviceGetSupportedVgpus(Gpu gpu, unsigned *count, unsigned *found) { return 3; }

#ifndef UNVERSIONED
int nvmlDeviceGetComputeRunningProcesses_v3(Gpu gpu, unsigned *count, Process *found)
{
#ifdef PROCESS
    if (found && !*count)
        return 7;
    *count = 1;
    if (found)
        *found = (Process){PROCESS, 1 << 20, 0, 0};
#else
    *count = 0;
#endif
    return 0;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Gpu gpu, unsigned *count, Process *found)
{
    *count = 0;
    return 0;
}
#endif
