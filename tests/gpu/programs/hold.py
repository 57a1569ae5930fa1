"""A job that says which cards CUDA shows it, and holds VRAM on the first: hold.py MIB SECONDS."""

import json
import os
import sys
import time

from driver import Driver

vram_mib, seconds = int(sys.argv[1]), float(sys.argv[2])
driver = Driver()
print(json.dumps({"pci_bus_ids": driver.pci_bus_ids, "pinned": os.environ.get("CUDA_VISIBLE_DEVICES")}), flush=True)
if vram_mib:
    driver.use()
    block = driver.allocate(vram_mib)
    print("holding", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        driver.work(block)
        time.sleep(0.05)
