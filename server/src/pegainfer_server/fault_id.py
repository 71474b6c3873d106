"""Ids that join what a client is told about an internal fault with what the log says."""

from __future__ import annotations

import logging
import uuid

logger = logging.getLogger(__name__)


def log_fault(error: BaseException, request_id: str) -> str:
    """Log an unexpected exception with its traceback; returns the id to tell."""
    error_id = uuid.uuid4().hex[:12]
    fields = {"request_id": request_id, "error_id": error_id}
    logger.error(
        "internal error %s id=%s", error_id, request_id, exc_info=error, extra={"fields": fields}
    )
    return error_id
