"""Rate limits: what a request is charged, and where that is taken from."""

from headrace.ingest.limits.charge import Charge, Limiter
from headrace.ingest.limits.fallback import FallbackLimiter
from headrace.ingest.limits.local import LocalLimiter

__all__ = ["Charge", "FallbackLimiter", "Limiter", "LocalLimiter"]
