"""A deployment that hears of its work pool only as it is applied: `prefect.deploy` does so."""

from typing import Any

from prefect.deployments.runner import RunnerDeployment
from pydantic import PrivateAttr

from laxity.flow.declaration import Declaration
from laxity.flow.pool_variables import with_declared


class LatePoolDeployment(RunnerDeployment):
    """Hands on what its flow declares once `apply` names a work pool; QoSError as in `deploy`."""

    _declared: Declaration = PrivateAttr()

    async def aapply(self, *args: Any, **options: Any) -> Any:
        self._hand_on(*args, **options)
        return await super().aapply(*args, **options)

    def apply(self, *args: Any, **options: Any) -> Any:
        self._hand_on(*args, **options)
        return super().apply(*args, **options)

    def _hand_on(
        self, schedules: Any = None, work_pool_name: str | None = None, *_: Any, **__: Any
    ) -> None:
        if work_pool_name:
            self.job_variables = with_declared(self._declared, self.job_variables, work_pool_name)


def wait_for_pool(made: RunnerDeployment, declared: Declaration) -> None:
    """Prefect builds a plain deployment; it holds nothing that a LatePoolDeployment would not."""
    made.__class__ = LatePoolDeployment
    made._declared = declared  # type: ignore[attr-defined]  # noqa: SLF001
