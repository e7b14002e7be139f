"""Program analysis: graphs of C source, and of other tools, analysed by live Datalog rules (§6.3.2).

extraction   facts about C source (assignments, dereferences, nulls, calls ...), kept up to date file by file
c_source     one C file to facts, with libclang (`libclang`, `c_nodes`)
facts        relations, places in the source, files of facts
grammar      Graspan's grammars as Datalog programs, and its lists of edges
programs     the programs that come with Ikebana: dataflow, points-to, optimised points-to, nulls
live         which null may reach which dereference, as the source changes
"""
