"""A job that wants more VRAM than its card has, and dies of it. One request: no neighbour loses anything."""

from driver import Driver, torch_with_cuda

torch = torch_with_cuda()
if torch is not None:
    total = torch.cuda.get_device_properties(0).total_memory
    torch.empty(total + 2**30, dtype=torch.uint8, device="cuda")
else:
    driver = Driver()
    driver.use()
    driver.allocate(driver.total_mib() + 1024)
