"""Settings of Spark SQL, and how a view treats each: planned by Spark, obeyed, or refused by name.

A setting can change a result at two moments. While a query is parsed, resolved and optimised: then the plan shows it,
and nothing is left to do (`PLANNED`). Or while expressions are evaluated, which Ikebana does in place of Spark: such a
setting is passed on with the plan and obeyed (`OBEYED`), or a query that depends on it is refused unless the setting
has its default (`REFUSED`). All other settings cannot change the result of a view (`WITHOUT_EFFECT`): they are about
execution, files, Spark's streams, commands, or functions that views refuse.

Names are without the prefix `spark.sql.`, where they have it; a name that ends with a dot stands for all settings that
begin with it, and the longest match counts. The list is complete for the pinned version of Spark: a test fails if Spark
has a setting that is not listed here.

A view keeps the settings under which it was created. Some settings become part of Catalyst's expressions when a
DataFrame is created (`Refused.flag`): for these the plan is checked rather than the current setting.

Cost: one string from Java for each query that is planned.
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

    `kinds` are the Catalyst classes that it affects; if there are none, it affects all queries. `flag` is a part of the
    plan's JSON which shows that an expression was created with another value than the default.
    """

    changes: str
    kinds: tuple[str, ...] = ()
    flag: str = ""


_MAPS = ("CreateMap", "MapFromArrays", "MapFromEntries", "StringToMap", "MapConcat", "TransformKeys")
_PATTERNS = ("DateFormatClass", "FromUnixTime", "GetTimestamp", "ToUnixTimestamp", "UnixTimestamp", "ParseToDate")
_PYTHON = ("PythonUDF",)
_CODES = ("StaticInvoke",)
_CALLS = ("UnresolvedFunction",)
"""Functions that planning writes as calls, from_json and to_json among them."""

REFUSED: Mapping[str, Refused] = {
    "execution.arrow.useLargeVarTypes": Refused("which Arrow types Python functions are given", _PYTHON),
    "execution.pandas.convertToArrowArraySafely": Refused("how results of Python functions are converted", _PYTHON),
    "execution.pandas.structHandlingMode": Refused("what Python functions are given for structs", _PYTHON),
    "execution.pyspark.binaryAsBytes": Refused("what Python functions are given for binaries", _PYTHON),
    "execution.pythonUDF.pandas.intToDecimalCoercionEnabled": Refused(
        "how results of Python functions are converted", _PYTHON
    ),
    "execution.pythonUDF.pandas.preferIntExtensionDtype": Refused("what Python functions are given", _PYTHON),
    "icu.caseMappings.enabled": Refused("the mapping to upper and lower case", ("Upper", "Lower", "InitCap")),
    "json.enableExactStringParsing": Refused("what from_json reads as a string", _CALLS),
    "json.enablePartialResults": Refused("what from_json does with values of another type", _CALLS),
    "jsonGenerator.ignoreNullFields": Refused("whether to_json writes nulls", _CALLS),
    "legacy.allowHashOnMapType": Refused("whether maps have a hash", ("Murmur3Hash", "XxHash64")),
    "legacy.allowNegativeScaleOfDecimal": Refused("which types decimals have"),
    "legacy.allowNullComparisonResultInArraySort": Refused(
        "what array_sort does with comparisons that are null", ("ArraySort",), '"allowNullComparisonResult":true'
    ),
    "legacy.allowZeroIndexInFormatString": Refused("which patterns format_string takes", ("FormatString",)),
    "legacy.castComplexTypesToString.enabled": Refused(
        "how arrays, structs and maps are converted to strings", ("Cast",)
    ),
    "legacy.codingErrorAction": Refused("what encode and decode do with characters that they cannot convert", _CODES),
    "legacy.createEmptyCollectionUsingStringType": Refused(
        "the type of empty arrays and maps", ("CreateArray", "CreateMap"), '"useStringTypeWhenEmpty":true'
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
    "mapKeyDedupPolicy": Refused("how duplicate keys of a map are treated", _MAPS),
    "preserveCharVarcharTypeInfo": Refused("whether CHAR and VARCHAR have lengths", ("Cast",)),
}
"""Settings that change how expressions are evaluated, and are not supported."""

OBEYED: Mapping[str, str] = {
    "ansi.enabled": "passed on with the plan: which errors become null",
    "cteRecursionLevelLimit": "passed on with the plan: the number of rounds after which a recursive query fails",
    "cteRecursionRowLimit": "passed on with the plan: the number of rows with which a recursive query fails",
    "decimalOperations.allowPrecisionLoss": "passed on with the plan: the types of results of decimal arithmetic",
    "session.timeZone": "passed on with the plan",
    "caseSensitive": "names of tables, views and columns follow it",
    "chunkBase64String.enabled": "an argument of the call in the plan",
    "execution.pythonUDF.arrow.enabled": "the kind of the function in the plan",
    "legacy.followThreeValuedLogicInArrayExists": "a field of the expression in the plan",
    "legacy.sizeOfNull": "a field of the expression in the plan",
    "legacy.statisticalAggregate": "a field of the expression in the plan",
}
"""Settings that change how expressions are evaluated, and how Ikebana gets them."""


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
"""Settings that Spark applies while it plans a query."""

WITHOUT_EFFECT: Mapping[str, frozenset[str]] = {
    "how a batch query is executed": _names("""
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
    "how errors, plans and progress are shown": _names("""
        binaryOutputStyle classic. cli. connect. dataFrameQueryContext. dataframeCache. debug debug. error. event.
        expressionTreeChangeLog. extendedExplainProviders legacy.emptyCurrentDBInCli legacy.raiseErrorWithoutErrorClass
        lightweightPlanChangeValidation maxMetadataStringLength maxPlanStringLength nameResolutionLog. planChangeLog.
        planChangeValidation planChangeValidation. queryExecutionListeners redaction. repl. restrictedMode.
        spark.python.sql. stackTracesInDataFrameContext thriftServer. thriftserver. ui.
    """),
    "Spark's files, tables and streams, which a view does not read": _names("""
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
"""Settings that do not change the result of a view, by subject."""


def treatment(key: str) -> str | None:
    """How a view treats a setting; None if the setting is unknown.

    >>> treatment("spark.sql.ansi.enabled")
    'passed on with the plan: which errors become null'
    >>> treatment("spark.sql.legacy.timeParserPolicy")
    'only the default is supported: how dates and timestamps are formatted and parsed by patterns'
    >>> treatment("spark.sql.optimizer.maxIterations"), treatment("spark.sql.adaptive.enabled")
    ('planned by Spark', 'without effect: how a batch query is executed')
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


def refuse_settings(plan: str, configured: str, value_of: Callable[[str], tuple[str, str]]) -> None:
    """Raise if a query depends on a setting that does not have its default, and is not supported.

    `plan` is the JSON of the query's plan, `configured` a string that contains the keys of all settings that are set,
    and `value_of` returns the value of a setting and its default.
    """
    for name, refused in REFUSED.items():
        key = PREFIX + name
        if refused.flag:
            if refused.flag in plan:
                raise _error(key, refused, "not its default", "its default")
        elif key in configured and _affects(refused, plan):
            value, default = value_of(key)
            if value.lower() != default.lower():
                raise _error(key, refused, repr(value), f"its default, {default!r}")


def _affects(refused: Refused, plan: str) -> bool:
    """Whether a plan has one of the classes that a setting affects."""
    kinds = "|".join(refused.kinds)
    return not kinds or re.search(rf'"class":"[\w.]*\.(?:{kinds})"', plan) is not None


def _error(key: str, refused: Refused, value: str, default: str) -> SqlError:
    return SqlError(
        f"the query cannot be maintained while {key} is {value}",
        detail=f"the setting decides {refused.changes}",
        hint=f"reset it to {default} before you create the query: spark.conf.unset({key!r})",
    )
