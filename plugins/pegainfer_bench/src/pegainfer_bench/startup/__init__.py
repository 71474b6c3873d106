"""Starting a server as a process: times, page cache, memory. Knows no flags of its own."""

from pegainfer_bench.startup.page_cache import evict, read_through, resident_share, weight_files
from pegainfer_bench.startup.process_memory import ProcessMemory, session_memory
from pegainfer_bench.startup.serve_words import serve_words
from pegainfer_bench.startup.server_process import ServerProcess

__all__ = [
    "ProcessMemory",
    "ServerProcess",
    "evict",
    "read_through",
    "resident_share",
    "serve_words",
    "session_memory",
    "weight_files",
]
