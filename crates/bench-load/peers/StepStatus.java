package org.apache.inlong.tubemq.server.common.statusdef;

/**
 * The steps by which TubeMQ's master announces a broker's new topics to clients, without the delays of 15 to 35 seconds between them in
 * TubeMQ's class of this name. The delays let readers of a running cluster rebalance first; here a load starts once all of its readers
 * have their partitions. This class precedes the master's jar only: the measured broker is unchanged.
 */
public enum StepStatus {
    STEP_STATUS_UNDEFINED(-2, "idle"),
    STEP_STATUS_LOAD_DATA(1, "load_data"),
    STEP_STATUS_WAIT_ONLINE(2, "wait_online"),
    STEP_STATUS_WAIT_SYNC(3, "wait_sync"),
    STEP_STATUS_WAIT_SUBSCRIBE(4, "wait_sub"),
    STEP_STATUS_WAIT_PUBLISH(5, "wait_pub");

    private final int code;
    private final String description;

    StepStatus(int code, String description) {
        this.code = code;
        this.description = description;
    }

    public int getCode() {
        return code;
    }

    public String getDescription() {
        return description;
    }

    public long getNormalDelayDurInMs() {
        return 0;
    }

    public long getShortDelayDurIdnMs() {
        return 0;
    }

    public static StepStatus valueOf(int code) {
        for (StepStatus status : values()) {
            if (status.code == code) {
                return status;
            }
        }
        throw new IllegalArgumentException("no step has the code " + code);
    }
}
