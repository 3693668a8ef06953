"""A cluster of this one machine: jobs are snakemake processes of their own, as under Slurm."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=1,
)


class Executor(RemoteExecutor):
    """Submits a job by starting its command, and asks the process how it is."""

    def run_job(self, job: JobExecutorInterface) -> None:
        process = subprocess.Popen(self.format_job_exec(job), shell=True)
        self.report_job_submission(SubmittedJobInfo(job, aux={"process": process}))

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        for info in active_jobs:
            code = info.aux["process"].poll()
            if code is None:
                yield info
            elif code == 0:
                self.report_job_success(info)
            else:
                self.report_job_error(info)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        for info in active_jobs:
            info.aux["process"].terminate()
