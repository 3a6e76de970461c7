"""Live groups: asyncio over UDP, driving the very machines that the simulator drives."""
