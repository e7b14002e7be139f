"""Settings of Spark SQL, and what becomes of each in a view: planned by Spark, obeyed, or refused by name.

A setting may change an answer at two moments. While a query is parsed, resolved and optimised: then the plan shows it,
and nothing is left to do here (`PLANNED`). Or while expressions are evaluated, which Ikebana does in place of Spark:
such a setting is handed on with the plan and obeyed (`OBEYED`), or a query that it concerns is refused where it does
not have its default (`REFUSED`). All others cannot change the answer of a view (`WITHOUT_EFFECT`): they are about
execution, files, streams of Spark's, commands, or functions that views refuse anyhow.

Names are without the prefix `spark.sql.`, where they have it; one that ends with a dot stands for all that begin with
it, and the longest that fits counts. The list is complete for the version of Spark that is pinned: a test asks Spark
for all its settings and fails when one is not here.

A view keeps the settings under which it was made. Some are part of Catalyst's expressions from the moment at which a
DataFrame was made (`Refused.flag`): there the plan is looked at, and not what is set by now.

Cost: one text from Java for each query that is planned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ikebana.errors import SqlError

PREFIX = "spark.sql."


@dataclass(frozen=True)
class Refused:
    """A setting of which only the default is supported: what it changes, and in which queries.

    `kinds` are classes of Catalyst's that it concerns, all queries if there are none. `flag` is how a plan shows that
    one of them was made under another value than the default.
    """

    changes: str
    kinds: tuple[str, ...] = ()
    flag: str = ""


_MAPS = ("CreateMap", "MapFromArrays", "MapFromEntries", "StringToMap", "MapConcat", "TransformKeys")
_PATTERNS = ("DateFormatClass", "FromUnixTime", "GetTimestamp", "ToUnixTimestamp", "UnixTimestamp", "ParseToDate")
_PYTHON = ("PythonUDF",)
_CODES = ("StaticInvoke",)

REFUSED: Mapping[str, Refused] = {
    "execution.arrow.useLargeVarTypes": Refused("which Arrow types Python functions are given", _PYTHON),
    "execution.pandas.convertToArrowArraySafely": Refused("how results of Python functions are converted", _PYTHON),
    "execution.pandas.structHandlingMode": Refused("what Python functions are given for structs", _PYTHON),
    "execution.pyspark.binaryAsBytes": Refused("what Python functions are given for binaries", _PYTHON),
    "execution.pythonUDF.pandas.intToDecimalCoercionEnabled": Refused(
        "how results of Python functions are converted", _PYTHON
    ),
    "execution.pythonUDF.pandas.preferIntExtensionDtype": Refused("what Python functions are given", _PYTHON),
    "icu.caseMappings.enabled": Refused("how letters become upper and lower case", ("Upper", "Lower", "InitCap")),
    "legacy.allowHashOnMapType": Refused("whether maps have a hash", ("Murmur3Hash", "XxHash64")),
    "legacy.allowNegativeScaleOfDecimal": Refused("which types decimals have"),
    "legacy.allowNullComparisonResultInArraySort": Refused(
        "what array_sort does with comparisons that are null", ("ArraySort",), '"allowNullComparisonResult":true'
    ),
    "legacy.allowZeroIndexInFormatString": Refused("which patterns format_string takes", ("FormatString",)),
    "legacy.castComplexTypesToString.enabled": Refused("how arrays, structs and maps become text", ("Cast",)),
    "legacy.codingErrorAction": Refused("what encode and decode do with characters that they cannot convert", _CODES),
    "legacy.createEmptyCollectionUsingStringType": Refused(
        "of which type empty arrays and maps are", ("CreateArray", "CreateMap"), '"useStringTypeWhenEmpty":true'
    ),
    "legacy.disableMapKeyNormalization": Refused("which keys of maps are equal", _MAPS),
    "legacy.earlyEvalCurrentTime": Refused("what now() is"),
    "legacy.execution.pythonUDF.pandas.conversion.enabled": Refused(
        "how arguments and results of Python functions are converted", _PYTHON
    ),
    "legacy.javaCharsets": Refused("which character sets encode and decode know", _CODES),
    "legacy.negativeIndexInArrayInsert": Refused(
        "where array_insert inserts at negative positions", ("ArrayInsert",), '"legacyNegativeIndex":true'
    ),
    "legacy.percentileDiscCalculation": Refused(
        "which value percentile_disc gives", ("PercentileDisc",), '"legacyCalculation":true'
    ),
    "legacy.sessionInitWithConfigDefaults": Refused("which settings a query is planned with"),
    "legacy.timeParserPolicy": Refused("how dates and timestamps are formatted and parsed by patterns", _PATTERNS),
    "legacy.truncateForEmptyRegexSplit": Refused("what split gives for an empty pattern", ("StringSplit",)),
    "mapKeyDedupPolicy": Refused("what becomes of keys that a map has twice", _MAPS),
    "preserveCharVarcharTypeInfo": Refused("whether CHAR and VARCHAR have lengths", ("Cast",)),
}
"""Settings that are read when expressions are evaluated, and are not obeyed."""

OBEYED: Mapping[str, str] = {
    "ansi.enabled": "handed on with the plan: what fails, and what is null instead",
    "cteRecursionLevelLimit": "handed on with the plan: after how many rounds a recursive query fails",
    "cteRecursionRowLimit": "handed on with the plan: with how many rows a recursive query fails",
    "decimalOperations.allowPrecisionLoss": "handed on with the plan: the types of results of decimal arithmetic",
    "session.timeZone": "handed on with the plan",
    "caseSensitive": "names of tables, views and columns follow it",
    "chunkBase64String.enabled": "an argument of the call in the plan",
    "execution.pythonUDF.arrow.enabled": "the kind of the function in the plan",
    "legacy.followThreeValuedLogicInArrayExists": "a field of the expression in the plan",
    "legacy.sizeOfNull": "a field of the expression in the plan",
    "legacy.statisticalAggregate": "a field of the expression in the plan",
}
"""Settings that change what expressions mean, and how Ikebana learns of them."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


PLANNED = _names("""
    allowNamedFunctionArguments alwaysInlineCommonExpr analyzer. ansi.doubleQuotedIdentifiers
    ansi.enforceReservedKeywords ansi.relationPrecedence assumeAnsiFalseIfNotPersisted.enabled
    binByRelationOperator.enabled catalog. charAsVarchar collation. constraintPropagation.enabled crossJoin.enabled
    cteRelationDefMaxRows.enabled defaultCatalog defaultPath dropDuplicates.deterministicKeyOrder.enabled
    enforceTypeCoercionBeforeUnionDeduplication.enabled experimental.optimizer. extensions extensions.test.loadFromCp
    function.concatBinaryAsString function.eltOutputAsString functionResolution.sessionOrder geospatial.enabled
    globalTempDatabase groupByAliases groupByOrdinal join.asofJoin.enabled join.sortMergeAsOfJoin.enabled
    lateralColumnAlias.enableImplicitResolution legacy.allowParameterlessCount
    legacy.allowStarWithSingleTableIdentifierInCount legacy.allowUdfParameterToShadowParameterlessFunction
    legacy.bangEqualsNot legacy.charVarcharAsString legacy.consecutiveStringLiterals.enabled
    legacy.cteDuplicateAttributeNames legacy.ctePrecedencePolicy legacy.decimal.retainFractionDigitsOnTruncate
    legacy.doLooseUpcast legacy.duplicateBetweenInput legacy.exponentLiteralAsDecimal.enabled
    legacy.fromDayTimeString.enabled legacy.groupingIdWithAppendedUserGroupBy legacy.identifierClause
    legacy.inSubqueryNullability legacy.integerGroupingId legacy.interval.enabled legacy.literal.pickMinimumPrecision
    legacy.lpadRpadAlwaysReturnString legacy.noCharPaddingInPredicate legacy.nullInEmptyListBehavior
    legacy.parameterSubstitution.constantsOnly legacy.parseQueryWithoutEof legacy.parser.havingWithoutGroupByAsWhere
    legacy.persistentCatalogFirst legacy.scalarSubqueryAllowGroupByNonEqualityCorrelatedPredicate
    legacy.scalarSubqueryCountBugBehavior legacy.setopsPrecedence.enabled legacy.storeAnalyzedPlanForView
    legacy.typeCoercion.datetimeToString.enabled legacy.useCurrentConfigsForView listagg.
    operatorPipeSyntaxEnabled optimizer. orderByOrdinal parser. path.enabled pivotMaxValues
    prioritizeOrdinalResolutionInSort.enabled readSideCharPadding retainGroupColumns
    runCollationTypeCastsBeforeAliasAssignment.enabled runSQLOnFiles selfJoinAutoResolveAmbiguity
    stableDerivedColumnAlias.enabled timeType.enabled timestampNanosTypes.enabled timestampType transposeMaxValues
    tvf. useCommonExprIdForAlias variable.substitute view.
""")
"""Settings that Spark applies before the plan is handed over."""

WITHOUT_EFFECT: Mapping[str, frozenset[str]] = {
    "how a batch is executed": _names("""
        adaptive. autoBroadcastJoinThreshold broadcastExchange. broadcastTimeout cache. cartesianProductExec. cbo.
        codegen. columnVector. cteRecursionAnchorRowsLimitToConvertToLocalRelation defaultCacheStorageLevel
        defaultSizeInBytes exchange. inMemoryColumnarStorage. inMemoryTableScanStatistics.
        join.preferSortMergeJoin join.splitStreamedSideJoinCondition lazySetOperatorOutput.enabled
        leafNodeDefaultParallelism limit. maxBroadcastTableSize maxSinglePartitionBytes objectHashAggregate.
        optimizeNullAwareAntiJoin optimizeNullAwareAntiJoin. orderingAwareLimitOffset planner.
        requireAllClusterKeysForCoPartition requireAllClusterKeysForDistribution resultQueryStage.
        sessionWindow. shuffle. shuffleDependency. shuffleExchange. shuffledHashJoinFactor sort. sortMergeJoinExec.
        statistics. subexpressionElimination. subquery. unionOutputPartitioning window. windowExec.
        execution.arrow.cache.prefetch.enabled execution.arrow.compression.codec
        execution.arrow.compression.zstd.level execution.arrow.enabled execution.arrow.fallback.enabled
        execution.arrow.localRelationThreshold execution.arrow.maxBytesPerBatch execution.arrow.maxBytesPerOutputBatch
        execution.arrow.maxRecordsPerBatch execution.arrow.maxRecordsPerOutputBatch execution.arrow.pyspark.
        execution.arrow.pythonUDF.columnarInput.enabled execution.arrow.sparkr.
        execution.arrow.transformWithStateInPySpark. execution.broadcastHashJoin. execution.bypassPartialAggregation
        execution.combineAdjacentAggregation execution.datasources. execution.fastFailOnFileFormatOutput
        execution.interruptOnCancel execution.pandas.udf.buffer.size execution.pushDownLocalSort
        execution.pushDownLocalSort.throughCardinalityReducer execution.pyspark.python execution.pyspark.udf.
        execution.python.udf. execution.pythonUDF.arrow.concurrency.level execution.rangeExchange.
        execution.removeRedundantProjects execution.removeRedundantSorts execution.replaceHashWithSortAgg
        execution.reuseSubquery execution.sortBeforeRepartition execution.topKSortFallbackThreshold
        execution.udf.unified.execution.enabled execution.useHashAggregateExec execution.useObjectHashAggregateExec
        execution.usePartitionEvaluator
    """),
    "how what is wrong, planned or done is shown": _names("""
        binaryOutputStyle classic. cli. connect. dataFrameQueryContext. dataframeCache. debug debug. error. event.
        expressionTreeChangeLog. extendedExplainProviders legacy.emptyCurrentDBInCli legacy.raiseErrorWithoutErrorClass
        lightweightPlanChangeValidation maxMetadataStringLength maxPlanStringLength nameResolutionLog. planChangeLog.
        planChangeValidation planChangeValidation. queryExecutionListeners redaction. repl. restrictedMode.
        spark.python.sql. stackTracesInDataFrameContext thriftServer. thriftserver. ui.
    """),
    "files, tables and streams of Spark's, which a view does not read": _names("""
        addPartitionInBatch. avro. bucketing. catalogImplementation columnNameOfCorruptRecord csv. dataSource.
        defaultColumn. defaultUrlStreamHandlerFactory. fileSource. files. filesourceTableRelationCacheSize
        generatedColumn. hive. kafka. legacy.addSingleFileInAddFile legacy.allowEmptySchemaWrite
        legacy.allowNonEmptyLocationInCTAS legacy.avro. legacy.bucketedTableScan. legacy.createHiveTableByDefault
        legacy.csv. legacy.dataFrameWriterV2IgnorePathOption legacy.db2. legacy.extraOptionsBehavior.enabled
        legacy.hive. legacy.jdbc. legacy.json. legacy.mssqlserver. legacy.mysql. legacy.notReserveProperties
        legacy.nullValueWrittenAsQuotedEmptyStringCsv legacy.oracle. legacy.parquet.
        legacy.parseNullPartitionSpecAsStringLiteral legacy.pathOptionBehavior.enabled legacy.postgres.
        legacy.readFileSourceTableCacheIgnoreOptions legacy.replaceDatabricksSparkAvro.enabled
        legacy.respectNullabilityInTextDatasetConversion legacy.skipTypeValidationOnAlterPartition
        legacy.useLegacyXMLParser maven. maxConcurrentOutputFileWriters metadataCacheTTLSeconds orc. parquet.
        pipelines. python. sources. streaming. timeTravel. timeTravelTimestampKey timeTravelVersionKey warehouse. xml.
    """),
    "commands and scripts, which are not queries": _names("""
        artifact. dropTableOnView.enabled insertIntoReplaceOn. insertIntoReplaceOnByName. insertIntoReplaceUsing.
        insertIntoReplaceUsingByName. insertIntoReplaceWhereColumnList. insertNestedTypeCoercion.
        legacy.allowAutoGeneratedAliasForView legacy.allowSessionVariableInPersistedView
        legacy.allowTempViewCreationWithMultipleNameparts legacy.blockCreateTempTableUsingProvider
        legacy.inlineCTEInCommands legacy.keepCommandOutputSchema legacy.keepPartitionSpecAsStringLiteral
        legacy.setCommandRejectsSparkCoreConfs legacy.useV1Command legacy.v1IdentifierNoCatalog
        legacy.viewSchemaBindingMode legacy.viewSchemaCompensation mergeNestedTypeCoercion. scriptTransformation.
        scripting. storeAssignmentPolicy truncateTable.
    """),
    "functions and types that a view refuses, and values outside of a query": _names("""
        datetime.java8API.enabled execution.pandas.inferPandasDictAsMap execution.pythonUDF.arrow.legacy.fallbackOnUDT
        execution.pythonUDF.mapInBatch. execution.pythonUDTF. function.protobufExtensions.enabled json. jsonGenerator.
        legacy.allowUntypedScalaUDF legacy.collationAwareHashFunctions legacy.dataset.
        legacy.execution.pandas.groupedMap.assignColumnsByName legacy.execution.pythonUDTF.
        legacy.histogramNumericPropagateInputType legacy.observeMetricsAggregateAllAttempts
        mapZipWithUsesJavaCollections protobuf. pyspark. reflect. session.localRelationBatchOfChunksSizeBytes
        session.localRelationCacheThreshold session.localRelationChunkSizeBytes session.localRelationChunkSizeLimit
        session.localRelationChunkSizeRows session.localRelationSizeLimit udt. variant.
    """),
}
"""Settings that do not change the answer of a view, by what they are about."""


def treatment(key: str) -> str | None:
    """What becomes of a setting in a view; None if it is not known.

    >>> treatment("spark.sql.ansi.enabled")
    'handed on with the plan: what fails, and what is null instead'
    >>> treatment("spark.sql.legacy.timeParserPolicy")
    'only the default is supported: how dates and timestamps are formatted and parsed by patterns'
    >>> treatment("spark.sql.optimizer.maxIterations"), treatment("spark.sql.adaptive.enabled")
    ('planned by Spark', 'without effect: how a batch is executed')
    >>> treatment("spark.sql.legacy.neverHeardOf")
    """
    name = key.removeprefix(PREFIX)
    while name:
        if name in TREATMENTS:
            return TREATMENTS[name]
        name = name.rstrip(".").rpartition(".")[0]
        name = f"{name}." if name else ""
    return None


TREATMENTS: Mapping[str, str] = {
    **{name: f"only the default is supported: {refused.changes}" for name, refused in REFUSED.items()},
    **OBEYED,
    **dict.fromkeys(PLANNED, "planned by Spark"),
    **{name: f"without effect: {about}" for about, names in WITHOUT_EFFECT.items() for name in names},
}


def refuse_settings(plan: str, shown: str, value_of: Callable[[str], tuple[str, str]]) -> None:
    """Raise if a query is made under a setting that it cannot be maintained with.

    `plan` is the JSON of its plan, `shown` a text that has the keys of all that is set, and `value_of` gives what a
    setting is, and what its default is.
    """
    for name, refused in REFUSED.items():
        key = PREFIX + name
        if refused.flag:
            if refused.flag in plan:
                raise _error(key, refused, "not its default", "its default")
        elif key in shown and _concerns(refused, plan):
            value, default = value_of(key)
            if value.lower() != default.lower():
                raise _error(key, refused, repr(value), f"its default, {default!r}")


def _concerns(refused: Refused, plan: str) -> bool:
    """Whether a plan has any of the classes that a setting is about."""
    kinds = "|".join(refused.kinds)
    return not kinds or re.search(rf'"class":"[\w.]*\.(?:{kinds})"', plan) is not None


def _error(key: str, refused: Refused, value: str, default: str) -> SqlError:
    return SqlError(
        f"the query cannot be maintained while {key} is {value}",
        detail=f"the setting decides {refused.changes}",
        hint=f"reset it to {default}, before the query is made: spark.conf.unset({key!r})",
    )
