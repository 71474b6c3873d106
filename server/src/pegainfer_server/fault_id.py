"""Ids that join what a client is told about an internal fault with what the log says."""

from __future__ import annotations

import logging
import uuid

logger = logging.getLogger(__name__)


def log_fault(error: BaseException) -> str:
    """Log an unexpected exception with its traceback; returns the id to tell."""
    error_id = uuid.uuid4().hex[:12]
    logger.error("internal error %s", error_id, exc_info=error)
    return error_id
