-- The tables that the six views read. `orders` and `lineitem` take the stream: they are change tables.
CREATE TABLE customer (
    c_custkey BIGINT PRIMARY KEY, c_name VARCHAR, c_address VARCHAR, c_nationkey BIGINT, c_phone VARCHAR,
    c_acctbal DECIMAL(15, 2), c_mktsegment VARCHAR, c_comment VARCHAR
);
CREATE TABLE nation (n_nationkey BIGINT PRIMARY KEY, n_name VARCHAR, n_regionkey BIGINT, n_comment VARCHAR);
CREATE TABLE part (
    p_partkey BIGINT PRIMARY KEY, p_name VARCHAR, p_mfgr VARCHAR, p_brand VARCHAR, p_type VARCHAR, p_size INTEGER,
    p_container VARCHAR, p_retailprice DECIMAL(15, 2), p_comment VARCHAR
);
CREATE TABLE partsupp (
    ps_partkey BIGINT, ps_suppkey BIGINT, ps_availqty INTEGER, ps_supplycost DECIMAL(15, 2), ps_comment VARCHAR,
    PRIMARY KEY (ps_partkey, ps_suppkey)
);
CREATE CHANGE TABLE orders (
    o_orderkey BIGINT, o_custkey BIGINT, o_orderstatus VARCHAR, o_totalprice DECIMAL(15, 2), o_orderdate DATE,
    o_orderpriority VARCHAR, o_clerk VARCHAR, o_shippriority INTEGER, o_comment VARCHAR,
    PRIMARY KEY (o_orderkey)
) WITH (retain = true);
CREATE CHANGE TABLE lineitem (
    l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber INTEGER, l_quantity DECIMAL(15, 2),
    l_extendedprice DECIMAL(15, 2), l_discount DECIMAL(15, 2), l_tax DECIMAL(15, 2), l_returnflag VARCHAR,
    l_linestatus VARCHAR, l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipinstruct VARCHAR,
    l_shipmode VARCHAR, l_comment VARCHAR,
    PRIMARY KEY (l_orderkey, l_linenumber)
) WITH (retain = true);
