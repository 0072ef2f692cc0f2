"""DescribeConfigs: every config of a topic with its value, its default and where the value comes from.

A broker's configs are our options under our own names, read-only.

Not supported: other resources (loggers, clients, groups): INVALID_REQUEST.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Final

from anabranch.broker.api.context import Context
from anabranch.broker.node import Node
from anabranch.broker.topic_config import TOPIC_CONFIGS, ConfigSource, ConfigType, TopicConfig
from anabranch.broker.wire.error_codes import ErrorCode
from anabranch.broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from anabranch.core.options import BrokerOptions

TOPIC: Final = 2
BROKER: Final = 4


def handle(node: Node, request: DescribeConfigsRequest, context: Context) -> DescribeConfigsResponse:
    """Describe each resource."""
    wanted = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    return DescribeConfigsResponse(results=[_resource(node, request, resource) for resource in wanted.values()])


def topic_values(configs: Mapping[str, str], options: BrokerOptions) -> Iterator[tuple[TopicConfig, str, ConfigSource]]:
    """Answer every topic config with the value in force and its source."""
    for row in TOPIC_CONFIGS.values():
        if row.name in configs:
            yield row, configs[row.name], ConfigSource.TOPIC
        else:
            yield row, *_default(row, options)


def _default(row: TopicConfig, options: BrokerOptions) -> tuple[str, ConfigSource]:
    """Answer what holds for a topic that says nothing, and whether an option of the broker made it so."""
    default = row.default(options)
    return default, ConfigSource.DEFAULT if default == row.default(BrokerOptions()) else ConfigSource.BROKER


def _resource(node: Node, request: DescribeConfigsRequest, wanted: DescribeConfigsResource) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=wanted.resource_type, resource_name=wanted.resource_name, error_message=None
    )
    if wanted.resource_type == TOPIC:
        topic = node.topics.get(wanted.resource_name)
        if topic is None:
            return _refused(result, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wanted.resource_name}")
        configs = _topic_configs(topic.configs, node.options, request)
    elif wanted.resource_type == BROKER:
        if wanted.resource_name not in ("", str(node.options.node_id)):
            return _refused(result, ErrorCode.INVALID_REQUEST, f"the only broker is {node.options.node_id}")
        configs = _broker_configs(node.options)
    else:
        return _refused(result, ErrorCode.INVALID_REQUEST, "only topics (2) and brokers (4) have configs here")
    keys = wanted.configuration_keys
    result.configs = [config for config in configs if keys is None or not keys or config.name in keys]
    return result


def _refused(result: DescribeConfigsResult, code: ErrorCode, message: str) -> DescribeConfigsResult:
    result.error_code, result.error_message = code, message
    return result


def _topic_configs(
    configs: Mapping[str, str], options: BrokerOptions, request: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    results = []
    for row, value, source in topic_values(configs, options):
        result = DescribeConfigsResourceResult(
            name=row.name,
            value=value,
            is_default=source is ConfigSource.DEFAULT,
            config_source=source,
            config_type=row.type,
            documentation=row.sentence if request.include_documentation else None,
        )
        if request.include_synonyms:
            result.synonyms = _synonyms(row, value, source, options)
        results.append(result)
    return results


def _synonyms(
    row: TopicConfig, value: str, source: ConfigSource, options: BrokerOptions
) -> list[DescribeConfigsSynonym]:
    """Answer all places a value can come from, the one in force first."""
    synonyms = [DescribeConfigsSynonym(name=row.name, value=value, source=source)]
    if source is ConfigSource.TOPIC:
        default, below = _default(row, options)
        synonyms.append(DescribeConfigsSynonym(name=row.name, value=default, source=below))
    return synonyms


def _broker_configs(options: BrokerOptions) -> list[DescribeConfigsResourceResult]:
    defaults = BrokerOptions()
    results = []
    for field in fields(options):
        value = getattr(options, field.name)
        default = value == getattr(defaults, field.name)
        results.append(
            DescribeConfigsResourceResult(
                name=field.name,
                value=None if value is None else str(value),
                read_only=True,
                is_default=default,
                config_source=ConfigSource.DEFAULT if default else ConfigSource.BROKER,
                config_type=ConfigType.STRING,
                documentation=None,
            )
        )
    return results
