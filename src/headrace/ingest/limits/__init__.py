"""Rate limits: what a request is charged, and where that is taken from."""

from headrace.ingest.limits.bucket_request import BucketRequest, Limiter
from headrace.ingest.limits.fallback import FallbackLimiter
from headrace.ingest.limits.local import LocalLimiter

__all__ = ["BucketRequest", "FallbackLimiter", "Limiter", "LocalLimiter"]
