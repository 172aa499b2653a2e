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
 * A library with NVML's symbols and no GPU: it says what the file nvml.description says that lies
 * beside it.  Each line is a key and a value; lines after "gpu" belong to that GPU.
 *
 *   init 18                       what nvmlInit answers (nvmlReturn_t)
 *   sleep_ms 2000                 for so long nvmlInit takes; hang; crash
 *   driver 570.148.08
 *   nvml 12.570.148.08
 *   gpu
 *   bus_id 00000000:3B:00.0
 *   handle 15                     what asking for its handle answers
 *   call 16                       what all other calls for it answer
 *   name NVIDIA T4
 *   mig 1 0                       whatever is not there is NOT_SUPPORTED
 *   process 4242 1048576 compute
 *   instance 1 5301600256 MIG-... MIG 1g.5gb
 *   vgpu 230 1 GRID T4-16Q        number, whether it can be created now, name
 *
 * Layouts of structures are those of the public interface (nvml.h).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_LINES 512
#define MOST_GPUS 64

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    UNKNOWN = 999,
};

typedef int Return;
typedef unsigned int uint;
typedef unsigned long long ull;

typedef struct {
    char key[40];
    char value[256];
} Line;

/* A GPU, or a MIG instance of one. */
typedef struct {
    Line lines[MOST_LINES];
    int count;
} Part;

typedef struct {
    char bus_id_legacy[16];
    uint domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} PciInfo;

typedef struct {
    ull total, free, used;
} Memory;

typedef struct {
    uint version;
    ull total, reserved, free, used;
} MemoryV2;

typedef struct {
    uint pid;
    ull memory;
} ProcessV1;

typedef struct {
    uint pid;
    ull memory;
    uint gpu_instance, compute_instance;
} Process;

static Part host;
static Part *gpus[MOST_GPUS];
static Part *instances[MOST_GPUS][8];
static uint gpu_count;
static int users;
static int is_read;

static const char *find(const Part *part, const char *key, uint number)
{
    for (int i = 0; i < part->count; i++)
        if (strcmp(part->lines[i].key, key) == 0 && number-- == 0)
            return part->lines[i].value;
    return NULL;
}

static uint how_many(const Part *part, const char *key)
{
    uint count = 0;
    while (find(part, key, count))
        count++;
    return count;
}

static void add(Part *part, const char *key, const char *value)
{
    Line *line;
    if (part->count == MOST_LINES)
        return;
    line = &part->lines[part->count++];
    snprintf(line->key, sizeof line->key, "%s", key);
    snprintf(line->value, sizeof line->value, "%s", value);
}

static FILE *open_description(void)
{
    char path[4096];
    Dl_info self;
    if (!dladdr((void *)&open_description, &self) || !self.dli_fname)
        return NULL;
    const char *slash = strrchr(self.dli_fname, '/');
    int length = slash ? (int)(slash - self.dli_fname) : 1;
    snprintf(path, sizeof path, "%.*s/nvml.description", length, slash ? self.dli_fname : ".");
    return fopen(path, "re");
}

/* "1 5301600256 MIG-uuid MIG 1g.5gb" becomes a part that answers as a GPU does. */
static Part *instance_of(const char *value)
{
    char number[16], memory[32], uuid[80];
    int rest = 0;
    Part *part = calloc(1, sizeof *part);
    if (part && sscanf(value, "%15s %31s %79s %n", number, memory, uuid, &rest) == 3) {
        add(part, "gpu_instance", number);
        add(part, "memory", memory);
        add(part, "uuid", uuid);
        add(part, "name", value + rest);
    }
    return part;
}

static void read_description(void)
{
    char line[512];
    Part *here = &host;
    if (is_read)
        return;
    is_read = 1;
    FILE *file = open_description();
    if (!file)
        return;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *value = strchr(line, ' ');
        if (value)
            *value++ = 0;
        else
            value = line + strlen(line);
        if (strcmp(line, "gpu") == 0) {
            if (gpu_count == MOST_GPUS || !(here = calloc(1, sizeof *here)))
                break;
            gpus[gpu_count++] = here;
        } else if (line[0]) {
            add(here, line, value);
        }
    }
    fclose(file);
    for (uint g = 0; g < gpu_count; g++)
        for (uint i = 0; i < 7 && find(gpus[g], "instance", i); i++)
            instances[g][i] = instance_of(find(gpus[g], "instance", i));
}

static void misbehave(const Part *part)
{
    const char *delay = find(part, "sleep_ms", 0);
    if (delay) {
        long ms = atol(delay);
        struct timespec time = {ms / 1000, ms % 1000 * 1000000};
        nanosleep(&time, NULL);
    }
    if (find(part, "hang", 0))
        for (;;)
            pause();
    if (find(part, "crash", 0)) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
}

static Return code(const Part *part, const char *key)
{
    const char *value = find(part, key, 0);
    return value ? atoi(value) : SUCCESS;
}

/* Return whether calls for a part answer at all, and with what error if not. */
static Return usable(const Part *part)
{
    if (!users)
        return UNINITIALIZED;
    if (!part)
        return INVALID_ARGUMENT;
    return code(part, "call");
}

static Return text_of(const Part *part, const char *key, char *buffer, uint size)
{
    const char *value = find(part, key, 0);
    if (!value)
        return NOT_SUPPORTED;
    if (strlen(value) + 1 > size)
        return INSUFFICIENT_SIZE;
    strcpy(buffer, value);
    return SUCCESS;
}

static Return numbers_of(const Part *part, const char *key, uint *first, uint *second)
{
    Return result = usable(part);
    if (result)
        return result;
    const char *value = find(part, key, 0);
    if (!value)
        return NOT_SUPPORTED;
    uint one = 0, two = 0;
    sscanf(value, "%u %u", &one, &two);
    *first = one;
    if (second)
        *second = two;
    return SUCCESS;
}

/* The library itself */

Return nvmlInitWithFlags(uint flags)
{
    (void)flags;
    read_description();
    misbehave(&host);
    Return result = code(&host, "init");
    if (!result)
        users++;
    return result;
}

Return nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
Return nvmlInit(void) { return nvmlInitWithFlags(0); }

Return nvmlShutdown(void)
{
    if (!users)
        return UNINITIALIZED;
    users--;
    return SUCCESS;
}

const char *nvmlErrorString(Return result)
{
    static char text[64];
    snprintf(text, sizeof text, "the stub says %d", result);
    return text;
}

Return nvmlSystemGetDriverVersion(char *buffer, uint size)
{
    return users ? text_of(&host, "driver", buffer, size) : UNINITIALIZED;
}

Return nvmlSystemGetNVMLVersion(char *buffer, uint size)
{
    read_description();
    return text_of(&host, "nvml", buffer, size);
}

/* Handles */

static Return opened(Part *part, void **handle)
{
    misbehave(part);
    Return result = code(part, "handle");
    if (!result)
        *handle = part;
    return result;
}

Return nvmlDeviceGetCount_v2(uint *count)
{
    if (!users)
        return UNINITIALIZED;
    *count = 0;
    for (uint g = 0; g < gpu_count; g++)
        if (!find(gpus[g], "unlisted", 0))
            ++*count;
    return code(&host, "count");
}

Return nvmlDeviceGetCount(uint *count) { return nvmlDeviceGetCount_v2(count); }

Return nvmlDeviceGetHandleByIndex_v2(uint index, void **handle)
{
    if (!users)
        return UNINITIALIZED;
    for (uint g = 0; g < gpu_count; g++)
        if (!find(gpus[g], "unlisted", 0) && index-- == 0)
            return opened(gpus[g], handle);
    return INVALID_ARGUMENT;
}

Return nvmlDeviceGetHandleByIndex(uint index, void **handle)
{
    return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

static int parsed(const char *bus_id, uint *domain, uint *bus, uint *device)
{
    uint function;
    return sscanf(bus_id, "%x:%x:%x.%x", domain, bus, device, &function) == 4;
}

Return nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **handle)
{
    uint domain, bus, device, of_domain, of_bus, of_device;
    if (!users)
        return UNINITIALIZED;
    if (!parsed(bus_id, &domain, &bus, &device))
        return INVALID_ARGUMENT;
    for (uint g = 0; g < gpu_count; g++) {
        const char *own = find(gpus[g], "real_bus_id", 0);
        if (!own || find(gpus[g], "unlisted", 0) || !parsed(own, &of_domain, &of_bus, &of_device))
            continue;
        if (domain == of_domain && bus == of_bus && device == of_device)
            return opened(gpus[g], handle);
    }
    return NOT_FOUND;
}

Return nvmlDeviceGetHandleByPciBusId(const char *bus_id, void **handle)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, handle);
}

/* What a GPU is */

Return nvmlDeviceGetPciInfo_v3(Part *gpu, PciInfo *pci)
{
    if (!users)
        return UNINITIALIZED;
    memset(pci, 0, sizeof *pci);
    const char *bus_id = find(gpu, "bus_id", 0), *own = find(gpu, "real_bus_id", 0);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", bus_id ? bus_id : "");
    if (own && parsed(own, &pci->domain, &pci->bus, &pci->device))
        snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%04X:%02X:%02X.0",
                 pci->domain & 0xffff, pci->bus & 0xff, pci->device & 0xff);
    return SUCCESS;
}

Return nvmlDeviceGetPciInfo_v2(Part *gpu, PciInfo *pci) { return nvmlDeviceGetPciInfo_v3(gpu, pci); }
Return nvmlDeviceGetPciInfo(Part *gpu, PciInfo *pci) { return nvmlDeviceGetPciInfo_v3(gpu, pci); }

#define TEXT(function, key)                                        \
    Return function(Part *gpu, char *buffer, uint size)            \
    {                                                              \
        Return result = usable(gpu);                               \
        return result ? result : text_of(gpu, key, buffer, size);  \
    }
TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetBoardPartNumber, "board_part")

#define ONE(function, key)                          \
    Return function(Part *gpu, uint *value)         \
    {                                               \
        return numbers_of(gpu, key, value, NULL);   \
    }
ONE(nvmlDeviceGetArchitecture, "architecture")
ONE(nvmlDeviceGetVirtualizationMode, "virtualization_mode")
ONE(nvmlDeviceGetHostVgpuMode, "host_vgpu_mode")
ONE(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pages_pending")
ONE(nvmlDeviceGetGpuInstanceId, "gpu_instance")

#define TWO(function, key)                                   \
    Return function(Part *gpu, uint *first, uint *second)    \
    {                                                        \
        return numbers_of(gpu, key, first, second);          \
    }
TWO(nvmlDeviceGetCudaComputeCapability, "compute_capability")
TWO(nvmlDeviceGetMigMode, "mig")
TWO(nvmlDeviceGetEccMode, "ecc")

static Return total_of(const Part *gpu, ull *total)
{
    Return result = usable(gpu);
    if (result)
        return result;
    const char *value = find(gpu, "memory", 0);
    if (!value)
        return NOT_SUPPORTED;
    *total = strtoull(value, NULL, 10);
    return SUCCESS;
}

Return nvmlDeviceGetMemoryInfo(Part *gpu, Memory *memory)
{
    ull total = 0;
    Return result = total_of(gpu, &total);
    if (!result)
        *memory = (Memory){total, total, 0};
    return result;
}

Return nvmlDeviceGetMemoryInfo_v2(Part *gpu, MemoryV2 *memory)
{
    ull total = 0;
    Return result = total_of(gpu, &total);
    if (!result)
        *memory = (MemoryV2){memory->version, total, 0, total, 0};
    return result;
}

/* Health */

Return nvmlDeviceGetTotalEccErrors(Part *gpu, int type, int counter, ull *count)
{
    Return result = usable(gpu);
    if (result)
        return result;
    const char *value = find(gpu, counter ? "ecc_aggregate" : "ecc_volatile", 0);
    if (!value)
        return NOT_SUPPORTED;
    /* 1 is uncorrected. */
    *count = type == 1 ? strtoull(value, NULL, 10) : 0;
    return SUCCESS;
}

Return nvmlDeviceGetRemappedRows(Part *gpu, uint *correctable, uint *uncorrectable, uint *pending,
                                 uint *failure)
{
    Return result = usable(gpu);
    if (result)
        return result;
    const char *value = find(gpu, "rows", 0);
    if (!value)
        return NOT_SUPPORTED;
    sscanf(value, "%u %u %u %u", correctable, uncorrectable, pending, failure);
    return SUCCESS;
}

/* Use */

static Return processes_of(Part *gpu, const char *kind, uint *count, Process *found)
{
    uint room = *count;
    Return result = usable(gpu);
    if (result)
        return result;
    *count = 0;
    for (uint i = 0; i < how_many(gpu, "process"); i++) {
        Process process = {0, 0, 0xffffffff, 0xffffffff};
        char own[16];
        if (sscanf(find(gpu, "process", i), "%u %llu %15s", &process.pid, &process.memory, own) != 3)
            continue;
        if (strcmp(own, kind) != 0)
            continue;
        if (found && *count < room)
            found[*count] = process;
        ++*count;
    }
    return *count > room || (*count && !found) ? INSUFFICIENT_SIZE : SUCCESS;
}

static Return processes_v1_of(Part *gpu, const char *kind, uint *count, ProcessV1 *found)
{
    Process all[MOST_LINES];
    uint most = MOST_LINES, room = *count;
    Return result = processes_of(gpu, kind, &most, all);
    if (result)
        return result;
    *count = most;
    if (most > room || (most && !found))
        return INSUFFICIENT_SIZE;
    for (uint i = 0; i < most; i++)
        found[i] = (ProcessV1){all[i].pid, all[i].memory};
    return SUCCESS;
}

#define PROCESSES(name, kind)                                                       \
    Return name(Part *gpu, uint *count, ProcessV1 *found)                           \
    {                                                                               \
        return processes_v1_of(gpu, kind, count, found);                            \
    }                                                                               \
    Return name##_v2(Part *gpu, uint *count, Process *found)                        \
    {                                                                               \
        return processes_of(gpu, kind, count, found);                               \
    }                                                                               \
    Return name##_v3(Part *gpu, uint *count, Process *found)                        \
    {                                                                               \
        return processes_of(gpu, kind, count, found);                               \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, "compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, "graphics")

/* Parts of a GPU */

Return nvmlDeviceGetMaxMigDeviceCount(Part *gpu, uint *count)
{
    uint now;
    Return result = numbers_of(gpu, "mig", &now, NULL);
    if (!result)
        *count = 7;
    return result;
}

Return nvmlDeviceGetMigDeviceHandleByIndex(Part *gpu, uint index, void **handle)
{
    Return result = usable(gpu);
    if (result)
        return result;
    for (uint g = 0; g < gpu_count; g++)
        if (gpus[g] == gpu && index < 7 && instances[g][index]) {
            *handle = instances[g][index];
            return SUCCESS;
        }
    return NOT_FOUND;
}

static Return vgpus_of(Part *gpu, int creatable_only, uint *count, uint *found)
{
    uint room = *count;
    Return result = usable(gpu);
    if (result)
        return result;
    if (!find(gpu, "vgpu", 0))
        return NOT_SUPPORTED;
    *count = 0;
    for (uint i = 0; i < how_many(gpu, "vgpu"); i++) {
        uint number, creatable;
        if (sscanf(find(gpu, "vgpu", i), "%u %u", &number, &creatable) != 2)
            continue;
        if (creatable_only && !creatable)
            continue;
        if (found && *count < room)
            found[*count] = number;
        ++*count;
    }
    return *count > room || (*count && !found) ? INSUFFICIENT_SIZE : SUCCESS;
}

Return nvmlDeviceGetSupportedVgpus(Part *gpu, uint *count, uint *found)
{
    return vgpus_of(gpu, 0, count, found);
}

Return nvmlDeviceGetCreatableVgpus(Part *gpu, uint *count, uint *found)
{
    return vgpus_of(gpu, 1, count, found);
}

Return nvmlVgpuTypeGetName(uint number, char *buffer, uint *size)
{
    for (uint g = 0; g < gpu_count; g++)
        for (uint i = 0; i < how_many(gpus[g], "vgpu"); i++) {
            uint own, creatable;
            int rest = 0;
            const char *value = find(gpus[g], "vgpu", i);
            if (sscanf(value, "%u %u %n", &own, &creatable, &rest) != 2 || own != number)
                continue;
            if (strlen(value + rest) + 1 > *size)
                return INSUFFICIENT_SIZE;
            strcpy(buffer, value + rest);
            return SUCCESS;
        }
    return INVALID_ARGUMENT;
}
